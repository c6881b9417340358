#pragma once
// How extended attributes lie in the tree: pairs that several inodes have are stored once and referred to by number.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/bytes.h"

namespace varve::index::erofs {

using XattrMap = std::map<std::string, std::string>;

struct XattrName {
  std::uint8_t index = 0;
  std::string_view suffix;
};
// Absent for names outside the kernel's namespaces ("com.apple.provenance"): no Linux file can carry them.
std::optional<XattrName> split_xattr_name(std::string_view name);
// The full name; absent for an unknown index.
std::optional<std::string> join_xattr_name(std::uint8_t index, std::string_view suffix);

// First every inode is counted, then lay_out() decides what is shared, then sizes are asked and bodies written. The
// maps must outlive this object.
class XattrPool {
 public:
  void count(const XattrMap& xattrs);
  // Gives each shared pair its place; returns the bytes of the shared area.
  std::uint64_t lay_out();
  // Bytes of an inode's xattr body; 0 if none. Throws Unsupported naming `path` where the format's limits are exceeded.
  std::uint64_t body_bytes(const XattrMap& xattrs, std::string_view path) const;
  void write_body(const XattrMap& xattrs, std::byte* at) const;
  void write_shared(std::byte* at) const;
  std::uint64_t left_out() const { return left_out_; }  // attributes whose name no Linux file can carry

 private:
  struct Use {
    std::uint64_t inodes = 0;
    std::uint64_t offset = 0;
  };
  const Use* shared(const std::string& name, const std::string& value, std::uint64_t shared_so_far) const;

  std::map<std::pair<std::string_view, std::string_view>, Use> uses_;
  std::uint64_t left_out_ = 0;
};

}  // namespace varve::index::erofs
