#include "core/index/format/internal/erofs_xattrs.h"

#include "core/base/errors.h"
#include "core/index/format/internal/erofs_format.h"

namespace varve::index::erofs {
namespace {

void write_entry(std::byte* at, const XattrName& name, std::string_view value) {
  at[0] = std::byte(name.suffix.size());
  at[1] = std::byte(name.index);
  store_le(at + 2, std::uint16_t(value.size()));
  std::memcpy(at + kXattrEntryBytes, name.suffix.data(), name.suffix.size());
  std::memcpy(at + kXattrEntryBytes + name.suffix.size(), value.data(), value.size());
}

}  // namespace

std::optional<XattrName> split_xattr_name(std::string_view name) {
  for (const auto& known : kXattrPrefixes) {
    if (!name.starts_with(known.prefix)) continue;
    const auto suffix = name.substr(known.prefix.size());
    if (known.whole_name != suffix.empty()) continue;
    return XattrName{.index = known.index, .suffix = suffix};
  }
  return std::nullopt;
}

std::optional<std::string> join_xattr_name(std::uint8_t index, std::string_view suffix) {
  for (const auto& known : kXattrPrefixes) {
    if (known.index == index && known.whole_name == suffix.empty()) return std::string(known.prefix).append(suffix);
  }
  return std::nullopt;
}

void XattrPool::count(const XattrMap& xattrs) {
  for (const auto& [name, value] : xattrs) {
    if (split_xattr_name(name)) {
      ++uses_[{name, value}].inodes;
    } else {
      ++left_out_;
    }
  }
}

std::uint64_t XattrPool::lay_out() {
  std::uint64_t offset = 0;
  for (auto& [pair, use] : uses_) {
    if (use.inodes < 2) continue;
    use.offset = offset;
    offset += xattr_entry_size(split_xattr_name(pair.first)->suffix.size(), pair.second.size());
  }
  return offset;
}

const XattrPool::Use* XattrPool::shared(const std::string& name, const std::string& value,
                                        std::uint64_t shared_so_far) const {
  if (shared_so_far == kMaxSharedXattrs) return nullptr;
  const auto use = uses_.find({name, value});
  return use != uses_.end() && use->second.inodes > 1 ? &use->second : nullptr;
}

std::uint64_t XattrPool::body_bytes(const XattrMap& xattrs, std::string_view path) const {
  std::uint64_t bytes = 0;
  std::uint64_t shared_count = 0;
  for (const auto& [name, value] : xattrs) {
    const auto split = split_xattr_name(name);
    if (!split) continue;
    if (split->suffix.size() > kMaxName || value.size() > kMaxXattrValue)
      fail<Unsupported>("{}: extended attribute {:.80} of {} bytes is longer than a tree can hold", path, name,
                        value.size());
    if (shared(name, value, shared_count) != nullptr) {
      ++shared_count;
      bytes += 4;
    } else {
      bytes += xattr_entry_size(split->suffix.size(), value.size());
    }
  }
  if (bytes == 0) return 0;
  bytes += kXattrHeaderBytes;
  if (bytes > kMaxXattrBodyBytes)
    fail<Unsupported>("{}: {} bytes of extended attributes are more than a tree can hold", path, bytes);
  return bytes;
}

void XattrPool::write_body(const XattrMap& xattrs, std::byte* at) const {
  std::byte* const header = at;
  at += kXattrHeaderBytes;
  // The numbers of shared pairs come first, so this walks the attributes twice.
  std::uint64_t shared_count = 0;
  for (const auto& [name, value] : xattrs) {
    if (!split_xattr_name(name)) continue;
    const auto* use = shared(name, value, shared_count);
    if (use == nullptr) continue;
    store_le(at, std::uint32_t(use->offset / 4));
    at += 4;
    ++shared_count;
  }
  header[4] = std::byte(shared_count);
  std::uint64_t shared_seen = 0;
  for (const auto& [name, value] : xattrs) {
    const auto split = split_xattr_name(name);
    if (!split) continue;
    if (shared(name, value, shared_seen) != nullptr) {
      ++shared_seen;
      continue;
    }
    write_entry(at, *split, value);
    at += xattr_entry_size(split->suffix.size(), value.size());
  }
}

void XattrPool::write_shared(std::byte* at) const {
  for (const auto& [pair, use] : uses_) {
    if (use.inodes > 1) write_entry(at + use.offset, *split_xattr_name(pair.first), pair.second);
  }
}

}  // namespace varve::index::erofs
