#include "fuse/daemon/loader/library_table.h"

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOrigin = "$ORIGIN", kOriginInBraces = "${ORIGIN}";
// Of the machines that Varve runs on, as glibc and Debian's /etc/ld.so.conf.d have them.
constexpr auto kDefaultFolders = std::to_array<std::string_view>(
    {"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64",
     "usr/lib64", "lib", "usr/lib", "usr/local/lib", "usr/local/cuda/lib64"});

bool is_library(std::string_view name) {
  const auto at = name.find(".so");
  return at != std::string_view::npos && at > 0 && (at + 3 == name.size() || name[at + 3] == '.');
}

bool has_programs(const fs::path& folder) { return folder.filename() == "bin" || folder.filename() == "sbin"; }

bool is_module(std::string_view name) {
  return is_library(name) && !name.starts_with("lib") && !name.starts_with("ld-");
}

bool begins_load(const fs::path& folder, std::string_view name) {
  if (!is_library(name)) return has_programs(folder);
  return is_module(name) || std::ranges::any_of(folder, [](const fs::path& part) {
           return part == "site-packages" || part == "dist-packages";
         });
}

std::string expanded(std::string_view folder, const std::string& origin) {
  for (const auto word : {kOrigin, kOriginInBraces})
    if (folder.starts_with(word)) return origin + std::string(folder.substr(word.size()));
  return std::string(folder);
}

}  // namespace

LibraryTable::LibraryTable(const index::ErofsReader& tree, const OnName& seen) : tree_(tree) {
  for_each_name(tree, [&](index::Nid nid, FileType type, const fs::path& folder, std::string_view name) {
    seen(nid, type, folder, name);
    if (type != FileType::kRegular && type != FileType::kSymlink) return;
    if (is_library(name) && folders_.size() < kMaxNames) folders_.try_emplace(std::string(name), folder.string());
    if (type != FileType::kRegular || !begins_load(folder, name) || heads_.size() == kMaxHeads) return;
    const auto runs = tree.runs(nid);
    if (runs.empty() || runs.front().file_offset != 0 || runs.front().device == 0) return;
    heads_.push_back({.place = {.device = runs.front().device, .offset = runs.front().device_offset},
                      .file = {.file = nid, .folder = folder.string()},
                      .is_module = is_module(name)});
  });
  std::ranges::sort(heads_, {}, &Head::place);
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
