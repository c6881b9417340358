#include "fuse/podman/store_users.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/json_document.h"
#include "core/base/safe_text.h"
#include "core/base/strings.h"

namespace varve::fuse::podman {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxListBytes = 256 << 20;
constexpr std::uint64_t kMaxTableBytes = 64 << 20;
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

bool is_process(const fs::path& entry) {
  const auto name = entry.filename().string();
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

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

std::vector<std::string> overlays_on(std::string_view mountinfo, const StoredImage& image) {
  std::vector<std::string> found;
  const auto top = image.top_layer();
  const std::string by_link = "/l/" + link_of(top);
  const std::string by_name = "/" + top + "/";
  for (const auto line : split(mountinfo, "\n")) {
    const auto separator = line.find(" - overlay ");
    if (separator == line.npos) continue;
    const auto options = line.substr(separator);
    if (options.find(by_link) == options.npos && options.find("=l/" + link_of(top)) == options.npos &&
        options.find(":l/" + link_of(top)) == options.npos && options.find(by_name) == options.npos)
      continue;
    const auto fields = split(line.substr(0, separator), " ");
    found.push_back(fields.size() > 4 ? std::string(fields[4]) : "?");
  }
  return found;
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

std::vector<std::string> find_mounted_users(const StoredImage& image) {
  std::set<std::string> namespaces;
  std::set<std::string> folders;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    if (!is_process(entry.path())) continue;
    std::error_code gone;
    const auto space = fs::read_symlink(entry.path() / "ns/mnt", gone);
    if (gone || !namespaces.insert(space.string()).second) continue;
    try {
      for (auto& folder : overlays_on(as_text(read_file(entry.path() / "mountinfo", kMaxTableBytes)), image))
        folders.insert(std::move(folder));
    } catch (const std::system_error&) {
      namespaces.erase(space.string());  // it ended; another of its namespace may be there
    }
  }
  std::vector<std::string> users;
  for (const auto& folder : folders) users.push_back("a mount at " + printable(folder));
  return users;
}

}  // namespace varve::fuse::podman
