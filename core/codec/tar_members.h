#pragma once
// Where the files of a tar lie, found by its headers alone: their content is read later, in place.
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "core/base/bytes.h"

namespace varve::codec {

inline constexpr std::size_t kMaxTarMembers = 100'000;  // of a tar that holds an image: three a layer, and a few

struct TarMember {
  std::uint64_t offset = 0;  // of the content, in the tar
  std::uint64_t size = 0;
};

// Reads exactly so many bytes at the offset; throws.
using TarRead = std::function<void(std::uint64_t offset, std::span<std::byte> into)>;

// Regular files by path, without "./" in front; a link counts as what it leads to, if that is there. Of two members of
// a path the later one counts. Throws CorruptData for what is no tar, is damaged or ends early; Unsupported above the
// limits. `what` names it in messages.
std::map<std::string, TarMember> find_tar_members(std::uint64_t tar_bytes, const TarRead& read, std::string_view what);

}  // namespace varve::codec
