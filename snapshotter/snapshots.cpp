#include "snapshotter/snapshots.h"

#include <algorithm>
#include <fstream>

#include "core/base/error_text.h"
#include "core/base/errors.h"
#include "core/base/files/private_folder.h"
#include "core/base/log.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"

namespace varve::snapshotter {
namespace {

constexpr std::size_t kMostLayers = 1024;  // beneath a snapshot; overlayfs takes 500

void check_name(const char* what, const std::string& name) {
  if (name.empty()) fail<UsageError>("the {} is empty", what);
  if (name.size() > kMaxNameBytes)
    fail<UsageError>("the {} has {} bytes, more than {}", what, name.size(), kMaxNameBytes);
}

void check_labels(const Labels& labels) {
  if (labels.size() > kMaxLabels) fail<UsageError>("{} labels, more than {}", labels.size(), kMaxLabels);
  for (const auto& [name, value] : labels)
    if (name.empty() || name.size() + value.size() > kMaxLabelBytes)
      fail<UsageError>("label {}: it has no name, or more than {} bytes with its value", visible(name), kMaxLabelBytes);
}

[[noreturn]] void fail_not_found(const std::string& name) {
  fail<NotFound>("there is no snapshot {}", printable(name));
}

std::string option(std::string_view name, const std::filesystem::path& value) {
  return fmt::format("{}={}", name, value.string());
}

// Where the kernel would look for an index of its own, which lower folders of several file systems cannot have.
bool has_overlay_index() {
  std::ifstream set("/sys/module/overlay/parameters/index");
  return set.get() == 'Y';
}

// Containers of before a loss may run in them.
std::filesystem::path folders_of(const std::filesystem::path& dir, std::int64_t now_ns) {
  make_private_folder(dir);
  const auto folders = dir / "snapshots";
  std::error_code none;
  if (!std::filesystem::exists(SnapshotTable::file_of(dir)) && std::filesystem::exists(folders) &&
      !std::filesystem::is_empty(folders, none)) {
    const auto aside = dir / fmt::format("snapshots-lost-{}", now_ns);
    std::filesystem::rename(folders, aside);
    log::error("{} is gone: what it told of is put aside in {}, to be removed once no container of before runs",
               SnapshotTable::file_of(dir).string(), aside.string());
  }
  return folders;
}

}  // namespace

// A folder that goes again unless its snapshot comes into the table.
class Snapshots::NewFolder {
 public:
  NewFolder(Snapshots& snapshots, std::int64_t id, bool writable) : snapshots_(snapshots), id_(id) {
    snapshots_.being_made_.lock()->insert(id_);
    try {
      snapshots_.folders_.make(id_, writable);
    } catch (...) {
      drop();
      throw;
    }
  }
  ~NewFolder() {
    if (kept_)
      snapshots_.being_made_.lock()->erase(id_);
    else
      drop();
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  void keep() { kept_ = true; }

 private:
  void drop() noexcept {
    try {
      snapshots_.folders_.remove(id_);
    } catch (const std::exception& error) {
      log::warn("{}; the next clean-up tries again", error_text(error));
    }
    snapshots_.being_made_.lock()->erase(id_);
  }

  Snapshots& snapshots_;
  const std::int64_t id_;
  bool kept_ = false;
};

Snapshots::Snapshots(const std::filesystem::path& dir, Trees& trees, SnapshotsOptions options)
    : options_(std::move(options)),
      folders_(folders_of(dir, options_.now_ns())),
      table_(std::in_place, SnapshotTable::file_of(dir)),
      held_(table_, trees),
      images_(table_, trees, options_.lazy) {
  const auto folders = folders_.ids();
  last_id_ = std::max(table_.lock()->highest_id(), folders.empty() ? 0 : folders.back());
  cleanup();
}

// The names of layers on layers that are all lazy tell what they stand for: a table that was lost, or is older than
// containerd's, has them again as soon as the image is known again.
std::optional<Snapshot> Snapshots::recover(SnapshotTable& table, const std::string& name) {
  const auto prefix = name_of_placeholder("");
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto seeds = table.seeds(name.substr(prefix.size()));
  if (seeds.empty()) return std::nullopt;
  const auto image = table.find_image(seeds.front().tree.image);
  if (!image) return std::nullopt;
  std::string parent;
  for (std::uint32_t layers = 1; layers <= seeds.front().tree.layers; ++layers) {
    const auto& chain = image->chain.at(layers - 1);
    const auto one = name_of_placeholder(chain);
    if (!table.find(one)) {
      const auto now = options_.now_ns();
      table.add({.id = ++last_id_,
                 .name = one,
                 .parent = parent,
                 .kind = SnapshotKind::kCommitted,
                 .labels = {{kSnapshotRefLabel, chain}},
                 .created_ns = now,
                 .updated_ns = now,
                 .chain = chain,
                 .tree = TreeId{.image = image->image, .layers = layers}});
      log::warn("the snapshot {} was lost, and is there again", one);
    }
    parent = one;
  }
  return table.find(name);
}

std::optional<Snapshot> Snapshots::find(const std::string& name) {
  auto table = table_.lock();
  auto found = table->find(name);
  return found ? found : recover(*table, name);
}

std::vector<Mount> Snapshots::prepare(const std::string& key, const std::string& parent, const Labels& labels) {
  check_name("key", key);
  check_labels(labels);
  if (const auto chain = labels.find(kSnapshotRefLabel); chain != labels.end()) {
    check_name("chain ID", chain->second);
    if (table_.lock()->find(key)) fail<FailedPrecondition>("a snapshot {} is there already", printable(key));
    if (const auto seed = images_.find(chain->second, labels); seed && fits(*seed, parent)) {
      stand_for_layer(*seed, parent, labels);
      fail<AlreadyExists>("the layer {} of {} is mounted lazily", chain->second, seed->reference);
    }
  }
  return make(SnapshotKind::kActive, key, parent, labels);
}

std::vector<Mount> Snapshots::view(const std::string& key, const std::string& parent, const Labels& labels) {
  check_name("key", key);
  check_labels(labels);
  return make(SnapshotKind::kView, key, parent, labels);
}

// A placeholder on a parent that is another layer would show other files than its chain ID says.
bool Snapshots::fits(const Seed& seed, const std::string& parent) {
  if (parent.empty() || seed.tree.layers == 1) return parent.empty() && seed.tree.layers == 1;
  const auto found = find(parent);
  if (!found) fail<NotFound>("there is no snapshot {}, the parent", printable(parent));
  if (found->kind != SnapshotKind::kCommitted) fail<UsageError>("the parent {} is not committed", printable(parent));
  if (!found->is_placeholder()) return true;
  const auto image = table_.lock()->find_image(seed.tree.image);
  return image && image->chain.at(seed.tree.layers - 2) == found->chain;
}

void Snapshots::stand_for_layer(const Seed& seed, const std::string& parent, const Labels& labels) {
  auto table = table_.lock();
  if (table->find_placeholder(seed.chain, parent)) return;
  const auto now = options_.now_ns();
  const auto id = ++last_id_;
  // One name for each chain ID and parent, as the same layer may stand on layers that were unpacked, by any name. On
  // placeholders alone the chain ID says it all.
  const auto below = parent.empty() ? std::nullopt : table->find(parent);
  const bool all_lazy =
      parent.empty() || (below && below->is_placeholder() && below->name == name_of_placeholder(below->chain));
  table->add({.id = id,
              .name = all_lazy ? name_of_placeholder(seed.chain) : fmt::format("varve/{}/{}", id, seed.chain),
              .parent = parent,
              .kind = SnapshotKind::kCommitted,
              .labels = labels,
              .created_ns = now,
              .updated_ns = now,
              .chain = seed.chain,
              .tree = seed.tree});
}

Snapshots::Beneath Snapshots::beneath(const std::string& parent) {
  Beneath beneath;
  for (auto name = parent; !name.empty();) {
    const auto found = find(name);
    if (!found) fail<NotFound>("there is no snapshot {}, the parent", printable(name));
    if (found->kind != SnapshotKind::kCommitted) fail<UsageError>("the parent {} is not committed", printable(name));
    if (found->is_placeholder()) {
      beneath.tree = found->tree;
      beneath.chain = found->chain;
      break;
    }
    if (beneath.unpacked.size() == kMostLayers)
      fail<Unsupported>("more than {} layers lie beneath {}", kMostLayers, printable(parent));
    beneath.unpacked.push_back(found->id);
    name = found->parent;
  }
  return beneath;
}

std::vector<Mount> Snapshots::make(SnapshotKind kind, const std::string& key, const std::string& parent,
                                   const Labels& labels) {
  const auto mapping = owner_mapping(labels);
  const auto beneath = this->beneath(parent);
  const auto now = options_.now_ns();
  const Snapshot snapshot{.id = ++last_id_,
                          .name = key,
                          .parent = parent,
                          .kind = kind,
                          .labels = labels,
                          .created_ns = now,
                          .updated_ns = now,
                          .tree = beneath.tree};
  NewFolder folder(*this, snapshot.id, kind == SnapshotKind::kActive);
  try {
    // Before the tree is held: a tree that no snapshot in the table has beneath is released.
    table_.lock()->add(snapshot);
  } catch (const AlreadyExists& error) {
    throw FailedPrecondition(error.what());
  }
  try {
    const auto lowers = this->lowers(snapshot, beneath);
    if (!lowers.empty())
      folders_.take_owner(snapshot.id, lowers.front());
    else if (mapping)
      folders_.take_owner(snapshot.id, *mapping);
    folder.keep();
    return mounts_of(snapshot, lowers);
  } catch (...) {
    table_.lock()->remove(snapshot.id);
    throw;
  }
}

// The topmost first.
std::vector<std::filesystem::path> Snapshots::lowers(const Snapshot& snapshot, const Beneath& beneath) {
  std::vector<std::filesystem::path> lowers;
  for (const auto id : beneath.unpacked) lowers.push_back(folders_.upper(id));
  if (beneath.tree) lowers.push_back(held_.hold(snapshot.id, snapshot.tree.value_or(*beneath.tree), beneath.chain).dir);
  const auto mapping = owner_mapping(snapshot.labels);
  return mapping && !lowers.empty() ? folders_.mapped(snapshot.id, lowers, *mapping) : lowers;
}

std::vector<Mount> Snapshots::mounts_of(const Snapshot& snapshot,
                                        const std::vector<std::filesystem::path>& lowers) const {
  const bool writable = snapshot.kind == SnapshotKind::kActive;
  if (lowers.empty())
    return {
        {.type = "bind", .source = folders_.upper(snapshot.id).string(), .options = {writable ? "rw" : "ro", "rbind"}}};
  if (!writable && lowers.size() == 1)
    return {{.type = "bind", .source = lowers.front().string(), .options = {"ro", "rbind"}}};
  std::vector<std::string> options;
  if (has_overlay_index()) options.emplace_back("index=off");
  if (writable) {
    options.push_back(option("workdir", folders_.work(snapshot.id)));
    options.push_back(option("upperdir", folders_.upper(snapshot.id)));
  }
  std::vector<std::string> names;
  for (const auto& lower : lowers) names.push_back(lower.string());
  options.push_back("lowerdir=" + joined(names, ":"));
  return {{.type = "overlay", .source = "overlay", .options = std::move(options)}};
}

std::vector<Mount> Snapshots::mounts(const std::string& key) {
  check_name("key", key);
  const auto snapshot = stat(key);
  if (snapshot.kind == SnapshotKind::kCommitted)
    fail<FailedPrecondition>("the snapshot {} is committed: it is mounted by a view", printable(key));
  return mounts_of(snapshot, lowers(snapshot, beneath(snapshot.parent)));
}

void Snapshots::commit(const std::string& name, const std::string& key, const Labels& labels,
                       const std::string& parent) {
  check_name("name", name);
  check_labels(labels);
  auto table = table_.lock();
  const auto found = table->find(key);
  if (!found) fail_not_found(key);
  if (found->kind != SnapshotKind::kActive) fail<FailedPrecondition>("the snapshot {} is not active", printable(key));
  if (!parent.empty() && parent != found->parent)
    fail<FailedPrecondition>("the snapshot {} has another parent, and cannot be given {}", printable(key),
                             printable(parent));
  table->commit(found->id, name, labels, options_.now_ns());
}

void Snapshots::remove(const std::string& key) {
  auto table = table_.lock();
  const auto found = table->find(key);
  if (!found) fail_not_found(key);
  if (table->has_children(found->id)) fail<FailedPrecondition>("the snapshot {} has children", printable(key));
  table->remove(found->id);
  removed_ = true;
}

Snapshot Snapshots::stat(const std::string& key) {
  auto found = find(key);
  if (!found) fail_not_found(key);
  return *found;
}

Snapshot Snapshots::update(const std::string& name, const Labels& labels, const std::vector<std::string>& paths) {
  constexpr std::string_view kOneLabel = "labels.";
  auto table = table_.lock();
  auto found = table->find(name);
  if (!found) fail_not_found(name);
  if (paths.empty()) found->labels = labels;
  for (const auto& path : paths) {
    if (path == "labels") {
      found->labels = labels;
    } else if (path.starts_with(kOneLabel) && path.size() > kOneLabel.size()) {
      const auto key = path.substr(kOneLabel.size());
      // As containerd's own snapshotters: a label that is masked and not given is taken away.
      if (const auto given = labels.find(key); given != labels.end())
        found->labels[key] = given->second;
      else
        found->labels.erase(key);
    } else {
      fail<UsageError>("{} of a snapshot cannot be changed, only its labels", visible(path));
    }
  }
  check_labels(found->labels);
  found->updated_ns = options_.now_ns();
  table->update_labels(found->id, found->labels, found->updated_ns);
  return *found;
}

std::vector<Snapshot> Snapshots::list(std::int64_t after, std::size_t limit) {
  return table_.lock()->list(after, limit);
}

SnapshotUsage Snapshots::usage(const std::string& key) {
  const auto snapshot = stat(key);
  if (snapshot.is_placeholder()) return {};
  if (snapshot.kind != SnapshotKind::kCommitted) return folders_.usage(snapshot.id);
  if (const auto known = table_.lock()->usage(snapshot.id)) return *known;
  const auto usage = folders_.usage(snapshot.id);
  table_.lock()->set_usage(snapshot.id, usage);
  return usage;
}

void Snapshots::cleanup() {
  const std::lock_guard one_at_a_time(cleaning_);
  removed_ = false;
  // In this order: a folder is being made before it is there, and until its snapshot is in the table.
  const auto folders = folders_.ids();
  const auto being_made = *being_made_.lock();
  const auto ids = table_.lock()->ids();
  for (const auto id : folders) {
    if (being_made.contains(id) || std::ranges::binary_search(ids, id)) continue;
    try {
      folders_.remove(id);
    } catch (const std::exception& error) {
      log::warn("the folder of snapshot {} is not removed, the next clean-up tries again: {}", id, error_text(error));
    }
  }
  try {
    held_.release_unused();
  } catch (const std::exception& error) {
    log::warn("trees that no snapshot needs stay mounted: {}", error_text(error));
  }
}

void Snapshots::cleanup_if_removed() {
  if (removed_) cleanup();
}

}  // namespace varve::snapshotter
