#pragma once
// POSIX ACLs from the text that tar writers keep to the binary form of the kernel (linux/posix_acl_xattr.h, version 2).
#include <optional>
#include <string>
#include <string_view>

#include "core/codec/internal/tar_header.h"

namespace varve::codec::internal {

enum class PosixAclKind { kAccess, kDefault };

// Entries are separated by commas or newlines: "user::rwx,user:lisa:rw-:1000,group::r-x,mask::r-x,other::---". The
// number of a named user or group is its fourth field (star, libarchive) or its name (GNU tar where the name had none).
// Absent if the ACL says no more than the mode, or names somebody without a number: only the image's own passwd file
// knows him. Throws CorruptData for text that is no ACL.
std::optional<std::string> posix_acl_from_text(std::string_view text, PosixAclKind kind, const TarPlace& place);

}  // namespace varve::codec::internal
