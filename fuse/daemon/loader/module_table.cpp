#include "fuse/daemon/loader/module_table.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "core/base/text/strings.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kTold = UINT64_MAX;
// What lies between two modules of a folder, as a tar's headers, is fetched with them.
constexpr std::uint64_t kGapBytes = 8 << 10;

bool holds_packages(std::string_view name) { return holds_distributions(name) || name.starts_with("python3."); }

// Of what is installed in one folder; empty if this is no description of a distribution.
std::string entry_points_group(const std::string& folder) {
  if (!folder.ends_with(".dist-info") && !folder.ends_with(".egg-info")) return "";
  return folder.substr(0, folder.find_last_of('/') + 1) + " entry points";
}

// Of a folder of modules; empty if they belong to none.
std::string package_of(const std::string& folder) {
  const auto names = split_words(folder, "/");
  std::size_t used = names.size();
  if (used > 0 && names.back() == "__pycache__") --used;
  std::size_t depth = used;
  for (std::size_t i = 0; i < used; ++i) {
    if (names[i] == "test" || names[i] == "tests") return "";
    if (holds_packages(names[i])) depth = std::min(i + 2, used);
  }
  std::string package;
  for (std::size_t i = 0; i < depth; ++i) package.append("/").append(names[i]);
  return package.empty() ? "/" : package;
}

}  // namespace

std::uint32_t ModuleTable::number_of(const std::string& key, std::string package) {
  const auto [number, fresh] = folder_numbers_.try_emplace(key, std::uint32_t(folders_.size()));
  if (fresh) folders_.push_back({.package = std::move(package)});
  return number->second;
}

void ModuleTable::add(const NamedFile& file) {
  const bool is_bytecode = file.name.ends_with(".pyc");
  const bool is_source = file.name.ends_with(".py");
  const auto entry_points = file.name == "entry_points.txt" ? entry_points_group(file.folder) : std::string();
  if ((!is_bytecode && !is_source && entry_points.empty()) || modules_.size() >= kMaxModules) return;
  if (file.folder != folder_) {
    folder_ = file.folder;
    source_number_ = bytecode_number_ = std::nullopt;
  }
  std::uint32_t number = 0;
  if (!entry_points.empty()) {
    number = number_of(entry_points, entry_points);
  } else if (auto& known = is_bytecode ? bytecode_number_ : source_number_; known) {
    number = *known;
  } else {
    auto package = package_of(folder_);
    if (!package.empty()) package += is_bytecode ? " pyc" : " py";
    number = *(known = number_of(folder_ + (is_bytecode ? "/pyc" : "/py"), std::move(package)));
  }
  auto& folder = folders_[number];
  if (folder.package.empty()) return;
  for (const auto& run : file.runs()) {
    if (run.device == 0 || run.length == 0) continue;
    modules_.push_back(
        {.place = {.device = run.device, .offset = run.device_offset}, .length = run.length, .folder = number});
    folder.bytes += run.length;
  }
}

void ModuleTable::finish() {
  std::unordered_map<std::string, std::uint64_t> package_bytes;
  for (const auto& folder : folders_) package_bytes[folder.package] += folder.bytes;
  std::unordered_map<std::string, std::uint32_t> groups;
  std::vector<std::optional<std::uint32_t>> group_of(folders_.size());
  for (std::size_t i = 0; i < folders_.size(); ++i) {
    const auto& folder = folders_[i];
    if (folder.package.empty() || folder.bytes > kMaxGroupBytes) continue;
    const bool whole = package_bytes[folder.package] <= kMaxGroupBytes;
    const auto name = whole ? folder.package : folder.package + " " + std::to_string(i);
    group_of[i] = groups.try_emplace(name, std::uint32_t(groups.size())).first->second;
  }
  std::ranges::sort(modules_, {}, [](const Module& one) { return std::tie(one.place, one.folder); });
  for (const auto& module : modules_) {
    const auto group = group_of[module.folder];
    if (!group) continue;
    if (!extents_.empty()) {
      auto& last = extents_.back();
      const auto end = last.place.offset + last.length;
      const bool same_device = last.place.device == module.place.device;
      if (same_device && module.place.offset < end) continue;  // two names of one file, or a hostile tree
      if (same_device && last.group == *group && module.place.offset - end <= kGapBytes) {
        last.length = module.place.offset + module.length - last.place.offset;
        continue;
      }
    }
    extents_.push_back({{.place = module.place, .length = module.length}, *group});
  }
  extents_.shrink_to_fit();
  first_reads_ = std::make_unique<std::atomic<std::uint64_t>[]>(groups.size());
  modules_ = {};
  folders_ = {};
  folder_numbers_ = {};
}

std::optional<std::uint32_t> ModuleTable::group_at(std::uint32_t device, ByteRange device_range) const {
  const auto after = std::ranges::upper_bound(extents_, DevicePlace{device, device_range.offset}, {}, &Extent::place);
  if (after != extents_.begin()) {
    const auto& before = *std::prev(after);
    if (before.place.device == device && before.place.offset + before.length > device_range.offset) return before.group;
  }
  if (after != extents_.end() && after->place.device == device && after->place.offset < device_range.end())
    return after->group;
  return std::nullopt;
}

std::optional<std::uint32_t> ModuleTable::note_read(std::uint32_t device, ByteRange device_range) const {
  const auto group = group_at(device, device_range);
  if (!group) return std::nullopt;
  auto& first_read = first_reads_[*group];
  // Places of several devices are apart, whatever their offsets.
  const auto place = (std::uint64_t(device) << 44) + device_range.offset + 1;
  auto first = first_read.load(std::memory_order_relaxed);
  if (first == 0 && first_read.compare_exchange_strong(first, place, std::memory_order_relaxed)) return std::nullopt;
  if (first == kTold || (place > first ? place - first : first - place) < kApart) return std::nullopt;
  return first_read.exchange(kTold, std::memory_order_relaxed) == kTold ? std::nullopt : group;
}

std::vector<DeviceExtent> ModuleTable::extents_of(std::uint32_t group) const {
  std::vector<DeviceExtent> extents;
  std::ranges::copy_if(extents_, std::back_inserter(extents), [&](const Extent& one) { return one.group == group; });
  return extents;
}

}  // namespace varve::fuse
