#include "fuse/podman/store_users.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/json_document.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "fuse/mount/mount_table.h"

namespace varve::fuse::podman {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxListBytes = 256 << 20;
constexpr JsonLimits kLimits{.bytes = kMaxListBytes, .depth = 32, .values = 20'000'000};
constexpr std::size_t kShownId = 12;

std::vector<JsonValue> entries_of(std::string_view text, std::string_view what) {
  // An empty file, or null, is a list that nothing was put into yet.
  if (trimmed(text).empty() || trimmed(text) == "null") return {};
  return JsonValue::parse(text, what, kLimits).items();
}

void parse_items(std::string_view text, std::string_view what, std::vector<StorageLists::Item>& into) {
  for (const auto& entry : entries_of(text, what)) {
    const auto names = entry.maybe("names");
    const auto all = names ? names.texts() : std::vector<std::string>();
    into.push_back({.id = entry["id"].text(), .layer = entry.maybe("layer").text(), .name = all.empty() ? "" : all[0]});
  }
}

std::string shown(const StorageLists::Item& item) {
  return item.name.empty() ? printable(item.id.substr(0, kShownId)) : printable(item.name);
}

// Whether following the parents of a layer leads to one of these.
class Ancestry {
 public:
  Ancestry(const StorageLists& lists, const std::vector<std::string>& layers) : ours_(layers.begin(), layers.end()) {
    for (const auto& layer : lists.layers) parents_[layer.id] = layer.parent;
  }
  bool leads_here(std::string layer) const {
    for (std::size_t steps = 0; steps <= parents_.size(); ++steps) {
      if (ours_.contains(layer)) return true;
      const auto found = parents_.find(layer);
      if (found == parents_.end()) return false;
      layer = found->second;
    }
    return false;  // parents of each other
  }

 private:
  std::set<std::string> ours_;
  std::map<std::string, std::string> parents_;
};

}  // namespace

void parse_layer_list(std::string_view text, std::string_view what, StorageLists& into) {
  for (const auto& entry : entries_of(text, what))
    into.layers.push_back({.id = entry["id"].text(), .parent = entry.maybe("parent").text()});
}

void parse_image_list(std::string_view text, std::string_view what, StorageLists& into) {
  parse_items(text, what, into.images);
}

void parse_container_list(std::string_view text, std::string_view what, StorageLists& into) {
  parse_items(text, what, into.containers);
}

StorageLists read_storage_lists(const StorageConf& conf) {
  StorageLists lists;
  using Parser = void (*)(std::string_view, std::string_view, StorageLists&);
  constexpr std::pair<const char*, Parser> kLists[] = {
      {"layers", parse_layer_list}, {"images", parse_image_list}, {"containers", parse_container_list}};
  for (const auto& [name, parse] : kLists)
    for (const auto& root : {conf.graph_root, conf.run_root})
      for (const auto* kind : {"", "volatile-"}) {  // of newer versions: what need not outlive a reboot
        const auto file = root / fmt::format("overlay-{}", name) / fmt::format("{}{}.json", kind, name);
        if (const auto content = read_file_if_there(file, kMaxListBytes))
          parse(as_text(*content), file.string(), lists);
      }
  return lists;
}

std::vector<std::string> find_users(const StoredImage& image, const StorageLists& lists) {
  const Ancestry ancestry(lists, image.layer_ids());
  std::vector<std::string> users;
  for (const auto& container : lists.containers)
    if (ancestry.leads_here(container.layer)) users.push_back("container " + shown(container));
  for (const auto& other : lists.images)
    if (ancestry.leads_here(other.layer)) users.push_back("image " + shown(other));
  return users;
}

std::vector<std::string> find_mounted_users(const fs::path& tree) {
  std::vector<std::string> users;
  for (const auto& folder : find_overlays_on(tree)) users.push_back("a mount at " + printable(folder.string()));
  return users;
}

}  // namespace varve::fuse::podman
