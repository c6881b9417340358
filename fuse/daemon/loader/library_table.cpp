#include "fuse/daemon/loader/library_table.h"

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>

#include "core/base/text/image_path.h"
#include "core/base/text/strings.h"
#include "fuse/daemon/loader/python_start.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOrigin = "$ORIGIN", kOriginInBraces = "${ORIGIN}";
// Of the machines that Varve runs on, as glibc and Debian's /etc/ld.so.conf.d have them.
constexpr auto kDefaultFolders = std::to_array<std::string_view>(
    {"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64",
     "usr/lib64", "lib", "usr/lib", "usr/local/lib", "usr/local/cuda/lib64"});

bool is_library_name(std::string_view name) {
  const auto at = name.find(".so");
  return at != std::string_view::npos && at > 0 && (at + 3 == name.size() || name[at + 3] == '.');
}

bool is_module(std::string_view name) {
  return is_library_name(name) && !name.starts_with("lib") && !name.starts_with("ld-");
}

bool is_in_package(std::string_view folder) {
  return std::ranges::any_of(split_words(folder, "/"), holds_distributions);
}

std::string expanded(std::string_view folder, const std::string& origin) {
  for (const auto word : {kOrigin, kOriginInBraces})
    if (folder.starts_with(word)) return origin + std::string(folder.substr(word.size()));
  return std::string(folder);
}

}  // namespace

void LibraryTable::add(const NamedFile& file, FileType type) {
  if (type != FileType::kRegular && type != FileType::kSymlink) return;
  if (file.folder != folder_) {
    folder_ = file.folder;
    has_programs_ = name_of(folder_) == "bin" || name_of(folder_) == "sbin";
    is_in_package_ = is_in_package(folder_);
  }
  const bool is_library = is_library_name(file.name);
  if (is_library && folders_.size() < kMaxNames) folders_.try_emplace(std::string(file.name), folder_);
  const bool begins_load = is_library ? is_module(file.name) || is_in_package_ : has_programs_;
  if (type != FileType::kRegular || !begins_load || heads_.size() == kMaxHeads) return;
  const auto place = file.first_place();
  if (!place) return;
  heads_.push_back({.place = *place,
                    .file = {.file = file.nid, .folder = folder_},
                    .is_module = is_module(file.name),
                    .python_minor = is_library ? 0 : python_minor_of(file.name)});
}

void LibraryTable::finish() {
  std::ranges::sort(heads_, {}, &Head::place);
  begun_ = std::make_unique<std::atomic<bool>[]>(heads_.size());
}

std::span<const LibraryTable::Head> LibraryTable::heads_in(std::uint32_t device, ByteRange device_range) const {
  return begun_in(heads_, device, device_range);
}

std::vector<std::size_t> LibraryTable::modules_in(const std::string& folder) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < heads_.size(); ++i)
    if (heads_[i].is_module && heads_[i].file.folder == folder) found.push_back(i);
  return found;
}

std::optional<LoadedFile> LibraryTable::file_at(const std::string& folder, std::string_view name,
                                                std::size_t& look_ups) const {
  if (look_ups == 0) return std::nullopt;
  --look_ups;
  const auto path = fs::path(folder) / name;
  if (path.native().size() >= PATH_MAX) return std::nullopt;
  const auto found = tree_.resolve(path.native(), true);
  if (!found || tree_.inode(*found).type != FileType::kRegular) return std::nullopt;
  return LoadedFile{.file = *found, .folder = path.parent_path().lexically_normal().relative_path().string()};
}

std::optional<LoadedFile> LibraryTable::find(std::string_view name, const LoadedFile& asker,
                                             std::string_view search_path, std::size_t& look_ups) const {
  if (name.find('/') != std::string_view::npos) return file_at("", expanded(name, asker.folder), look_ups);
  for (std::size_t folders = 0; !search_path.empty() && folders < kMaxSearchFolders; ++folders) {
    const auto folder = search_path.substr(0, search_path.find(':'));
    search_path.remove_prefix(std::min(search_path.size(), folder.size() + 1));
    if (folder.empty()) continue;
    if (auto found = file_at(expanded(folder, asker.folder), name, look_ups)) return found;
  }
  for (const auto folder : kDefaultFolders)
    if (auto found = file_at(std::string(folder), name, look_ups)) return found;
  if (auto found = file_at(asker.folder, name, look_ups)) return found;
  const auto anywhere = folders_.find(std::string(name));
  return anywhere == folders_.end() ? std::nullopt : file_at(anywhere->second, name, look_ups);
}

}  // namespace varve::fuse
