#include "core/codec/tar_members.h"

#include <array>
#include <filesystem>

#include "core/base/errors.h"
#include "core/codec/internal/pax.h"
#include "core/codec/internal/tar_header.h"

namespace varve::codec {
namespace {

constexpr std::uint64_t kMaxExtensionBytes = 1024 * 1024;  // of one extended header or long name
constexpr int kMaxLinks = 16;                              // followed one after the other

std::string normal(const std::string& path) {
  auto text = std::filesystem::path("/" + path).lexically_normal().string().substr(1);
  if (text.ends_with('/')) text.pop_back();
  return text;
}

class MemberFinder {
 public:
  MemberFinder(std::uint64_t tar_bytes, const TarRead& read, std::string_view what)
      : end_(tar_bytes), read_(read), what_(what) {}

  std::map<std::string, TarMember> run() {
    std::array<std::byte, kTarBlock> block{};
    for (std::uint64_t at = 0; at + kTarBlock <= end_;) {
      read_(at, block);
      if (internal::is_zero_block(block)) break;
      const internal::TarPlace place{.what = what_, .stream_offset = at};
      auto header = internal::parse_tar_header(block, place);
      const auto begin = at + kTarBlock;
      if (is_extension(header.typeflag)) {
        take_extension(header, begin, place);
      } else {
        apply_extensions(header, place);
        add(header, begin);
      }
      // Links and folders have no content, whatever their size field says.
      const bool has_content = is_extension(header.typeflag) || is_file(header.typeflag);
      const auto bytes = has_content ? header.size : 0;
      if (bytes > end_ - begin)
        fail<CorruptData>("{}: it ends within '{:.200}', after {} bytes", what_, header.name, end_);
      at = begin + bytes + padding_of(bytes);
    }
    follow_links();
    return std::move(files_);
  }

 private:
  static bool is_extension(char type) { return type == 'x' || type == 'g' || type == 'L' || type == 'K'; }
  static bool is_file(char type) { return type == '0' || type == '\0' || type == '7'; }

  void take_extension(const internal::TarHeader& header, std::uint64_t begin, const internal::TarPlace& place) {
    if (header.size > kMaxExtensionBytes || header.size > end_ - begin)
      fail<Unsupported>("{}: an extended header of {} bytes", what_, header.size);
    Bytes bytes(header.size);
    read_(begin, bytes);
    if (header.typeflag == 'x') internal::parse_pax(bytes, pax_, place);
    if (header.typeflag == 'L') long_name_ = internal::tar_text(bytes);
    if (header.typeflag == 'K') long_link_ = internal::tar_text(bytes);
  }

  void apply_extensions(internal::TarHeader& header, const internal::TarPlace& place) {
    if (!long_name_.empty()) header.name = std::exchange(long_name_, {});
    if (!long_link_.empty()) header.link_name = std::exchange(long_link_, {});
    if (const auto* path = pax_.find("path")) header.name = *path;
    if (const auto* link = pax_.find("linkpath")) header.link_name = *link;
    if (const auto* size = pax_.find("size")) header.size = internal::parse_pax_number(*size, "size", place);
    pax_ = {};
  }

  void add(const internal::TarHeader& header, std::uint64_t begin) {
    const auto name = normal(header.name);
    if (files_.size() + links_.size() >= kMaxTarMembers)
      fail<Unsupported>("{}: more than {} files in it", what_, kMaxTarMembers);
    files_.erase(name);
    links_.erase(name);
    if (is_file(header.typeflag)) files_[name] = {.offset = begin, .size = header.size};
    if (header.typeflag == '1') links_[name] = normal(header.link_name);
    if (header.typeflag == '2') {
      const auto folder = std::filesystem::path(name).parent_path();
      links_[name] = normal((folder / header.link_name).string());
    }
  }

  void follow_links() {
    for (const auto& [name, first] : links_) {
      auto target = first;
      for (int hop = 0; hop < kMaxLinks && links_.contains(target); ++hop) target = links_.at(target);
      if (const auto file = files_.find(target); file != files_.end()) files_[name] = file->second;
    }
  }

  const std::uint64_t end_;
  const TarRead& read_;
  const std::string_view what_;
  internal::PaxRecords pax_;
  std::string long_name_;
  std::string long_link_;
  std::map<std::string, TarMember> files_;
  std::map<std::string, std::string> links_;
};

}  // namespace

std::map<std::string, TarMember> find_tar_members(std::uint64_t tar_bytes, const TarRead& read, std::string_view what) {
  if (tar_bytes < kTarBlock) fail<CorruptData>("{}: {} bytes are no tar", what, tar_bytes);
  return MemberFinder(tar_bytes, read, what).run();
}

}  // namespace varve::codec
