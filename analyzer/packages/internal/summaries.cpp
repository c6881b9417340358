#include "analyzer/packages/internal/summaries.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/text/image_path.h"

namespace varve::packages::internal {
namespace {

using WasteKey = std::tuple<Waste::Why, std::uint32_t, std::uint32_t>;  // why, layer, by layer

class WasteSums {
 public:
  // A file of the tree, or a hidden one.
  template <typename File>
  void add(Waste::Why why, std::uint32_t by_layer, const std::string& path, const File& file) {
    auto& waste = sums_[{why, file.layer, by_layer}];
    auto& [sum, largest] = waste;
    ++sum.files;
    sum.bytes += file.size;
    sum.compressed_bytes += file.compressed_bytes;
    if (sum.example.empty() || file.size > largest) {
      sum.example = path;
      largest = file.size;
    }
  }

  std::vector<Waste> take() {
    std::vector<Waste> result;
    for (auto& [key, waste] : sums_) {
      auto& [sum, largest] = waste;
      std::tie(sum.why, sum.layer, sum.by_layer) = key;
      result.push_back(std::move(sum));
    }
    std::ranges::stable_sort(result, std::greater(), &Waste::bytes);
    return result;
  }

 private:
  std::map<WasteKey, std::pair<Waste, std::uint64_t>> sums_;  // and the size of the example
};

Waste::Why why_hidden(const index::HiddenFile& hidden) {
  if (hidden.deleted) return Waste::Why::kDeleted;
  return hidden.same_content ? Waste::Why::kDuplicated : Waste::Why::kReplaced;
}

// What all files below a folder have in common.
struct Below {
  enum class Kind : std::uint8_t { kNothing, kOneSet, kMixed };
  Kind kind = Kind::kNothing;
  std::uint32_t set = 0;

  void add(std::uint32_t other) {
    if (kind == Kind::kNothing) {
      kind = Kind::kOneSet;
      set = other;
    } else if (kind == Kind::kOneSet && set != other) {
      kind = Kind::kMixed;
    }
  }
  void add(const Below& other) {
    if (other.kind == Kind::kOneSet) add(other.set);
    if (other.kind == Kind::kMixed) kind = Kind::kMixed;
  }
};

// By folder path, "" the root. Only content counts: empty folders have nothing.
std::map<std::string_view, Below> look_below(const FileTable& table, const Ownership& ownership) {
  std::map<std::string_view, Below> folders;
  // Folders come before what is below them, so that from the end everything below one has been added when its turn
  // comes.
  for (FileId id = table.size(); id-- > 0;) {
    const auto path = table.path(id);
    if (table.is_folder(id)) {
      if (const auto found = folders.find(path); found != folders.end()) folders[parent_of(path)].add(found->second);
    } else {
      folders[parent_of(path)].add(table.is_content(id) ? ownership.set_of(id) : 0);
    }
  }
  return folders;
}

// The highest folder above a path of which `fits` is true; "" if not even its own folder does.
template <typename Fits>
std::string_view highest(std::string_view path, const Fits& fits) {
  std::string_view found;
  for (auto folder = parent_of(path); !folder.empty() && fits(folder); folder = parent_of(folder)) found = folder;
  return found;
}

// "usr/lib/python3.11" of a file of its standard library: nobody's, and one thing to people.
std::string_view standard_library(std::string_view path) {
  const auto at = path.find("/python3.");
  if (at == std::string_view::npos) return {};
  const auto end = path.find('/', at + 1);
  if (end == std::string_view::npos) return {};
  const auto folder = path.substr(0, end);
  const auto library = name_of(parent_of(folder));
  const auto rest = path.substr(end + 1);
  const bool site = rest.starts_with("site-packages/") || rest.starts_with("dist-packages/");
  return !site && (library == "lib" || library == "lib64") ? folder : std::string_view();
}

}  // namespace

void sum_waste(const index::FileSource& source, const FileTable& table, const Records& records,
               const std::vector<StaleRecord>& stale, Inventory& inventory) {
  WasteSums sums;
  for (const auto& hidden : source.tree().hidden) sums.add(why_hidden(hidden), hidden.by_layer, hidden.path, hidden);
  for (const auto& one : stale) {
    const auto& record = records.records[one.record];
    const auto by_layer = records.records[one.truth].layer;
    const auto [first, end] = table.below(record.path);
    for (auto id = first; id < end; ++id) {
      if (table.is_content(id))
        sums.add(Waste::Why::kStaleMetadata, by_layer, std::string(table.path(id)), table.file(id));
    }
    if (first == end) {
      if (const auto id = table.find(record.path))
        sums.add(Waste::Why::kStaleMetadata, by_layer, record.path, table.file(*id));
    }
  }
  inventory.waste = sums.take();
}

void sum_layers(const index::FileSource& source, const FileTable& table, const Ownership& ownership,
                Inventory& inventory) {
  for (const auto& layer : source.facts().layers)
    inventory.layers.push_back({.digest = layer.digest,
                                .compressed_bytes = layer.compressed_bytes,
                                .stream_bytes = layer.stream_bytes,
                                .created_by = layer.created_by});
  if (inventory.layers.empty()) return;
  for (FileId id = 0; id < table.size(); ++id) {
    const auto& file = table.file(id);
    if (!file.is_first_name() || file.layer >= inventory.layers.size()) continue;
    auto& layer = inventory.layers[file.layer];
    (ownership.set_of(id) != 0 ? layer.owned_bytes : layer.unowned_bytes) += file.size;
  }
  for (const auto& waste : inventory.waste) {
    if (waste.layer < inventory.layers.size()) inventory.layers[waste.layer].wasted_bytes += waste.bytes;
  }
}

void sum_unowned(const FileTable& table, const Ownership& ownership, Inventory& inventory) {
  const auto folders = look_below(table, ownership);
  const auto is_unowned = [&](std::string_view folder) {
    const auto found = folders.find(folder);
    return found != folders.end() && found->second.kind == Below::Kind::kOneSet && found->second.set == 0;
  };
  std::map<std::string, UnownedFolder, std::less<>> sums;
  for (FileId id = 0; id < table.size(); ++id) {
    if (!table.is_content(id) || ownership.set_of(id) != 0) continue;
    const auto path = table.path(id);
    auto folder = standard_library(path);
    if (folder.empty()) folder = highest(path, is_unowned);
    if (folder.empty()) folder = parent_of(path);  // beside files that somebody owns
    auto found = sums.find(folder);
    if (found == sums.end())
      found = sums.emplace(std::string(folder), UnownedFolder{.path = std::string(folder)}).first;
    const auto bytes = table.file(id).is_first_name() ? table.file(id).size : 0;
    ++found->second.files;
    found->second.bytes += bytes;
    ++inventory.unowned_files;
    inventory.unowned_bytes += bytes;
  }
  for (auto& [path, folder] : sums) inventory.unowned.push_back(std::move(folder));
  std::ranges::stable_sort(inventory.unowned, std::greater(), &UnownedFolder::bytes);
}

void find_path_owners(const FileTable& table, const Ownership& ownership, Inventory& inventory) {
  const auto folders = look_below(table, ownership);
  const auto has_one_owner = [&](std::string_view folder) {
    if (!program_of_path(join_path(folder, "x")).empty()) return false;  // programs are looked for by their names
    const auto found = folders.find(folder);
    return found != folders.end() && found->second.kind == Below::Kind::kOneSet && found->second.set != 0;
  };
  std::string last;  // the prefix that covers what follows it
  for (FileId id = 0; id < table.size(); ++id) {
    if (!table.is_content(id) || ownership.set_of(id) == 0) continue;
    const auto path = table.path(id);
    if (!last.empty() && path.starts_with(last)) continue;
    const auto folder = highest(path, has_one_owner);
    last = folder.empty() ? std::string() : std::string(folder) + '/';
    inventory.path_owners.emplace(folder.empty() ? std::string(path) : last, ownership.of(id));
  }
}

}  // namespace varve::packages::internal
