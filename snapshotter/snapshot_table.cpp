#include "snapshotter/snapshot_table.h"

#include <array>
#include <ctime>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/base/text/json_document.h"
#include "core/sql/schema.h"

namespace varve::snapshotter {
namespace {

const SqlDatabaseKind kKind{.name = "snapshotter's table", .setting_table = "snapshotter_setting"};

constexpr std::array<std::string_view, 1> kScripts{R"(
CREATE TABLE snapshot (
  id {key}, name TEXT NOT NULL UNIQUE, parent {number} NOT NULL, kind {number} NOT NULL, labels TEXT NOT NULL,
  created_ns {number} NOT NULL, updated_ns {number} NOT NULL, chain TEXT NOT NULL, image TEXT NOT NULL,
  layers {number} NOT NULL, bytes {number} NOT NULL, inodes {number} NOT NULL) {table_end};
CREATE INDEX snapshot_parent ON snapshot (parent);
CREATE INDEX snapshot_chain ON snapshot (chain) WHERE chain <> '';
CREATE INDEX snapshot_tree ON snapshot (image, layers) WHERE image <> '';
CREATE TABLE image (image TEXT NOT NULL PRIMARY KEY, reference TEXT NOT NULL, layers {number} NOT NULL) {table_end};
CREATE TABLE seed (chain TEXT NOT NULL, image TEXT NOT NULL, layers {number} NOT NULL,
  PRIMARY KEY (chain, image, layers)) {keyed_table_end};
CREATE INDEX seed_image ON seed (image);
CREATE TABLE refusal (image TEXT NOT NULL PRIMARY KEY, reference TEXT NOT NULL, why TEXT NOT NULL,
  at {number} NOT NULL) {table_end};
)"};

// Old refusals say nothing any more; more of them than this nobody reads.
constexpr std::int64_t kMostRefusals = 1000;

constexpr std::string_view kSelect =
    "SELECT s.id, s.name, coalesce(p.name, ''), s.kind, s.labels, s.created_ns, s.updated_ns, s.chain, s.image, "
    "s.layers FROM snapshot s LEFT JOIN snapshot p ON p.id = s.parent ";

std::string labels_text(const Labels& labels) { return nlohmann::json(labels).dump(); }

Snapshot read_snapshot(const SqlRow& row) {
  Snapshot one{.id = row.number(0),
               .name = row.text(1),
               .parent = row.text(2),
               .kind = SnapshotKind(row.number(3)),
               .labels = JsonValue::parse(row.text(4), "labels of a snapshot", {.bytes = 16u << 20}).texts_by_name(),
               .created_ns = row.number(5),
               .updated_ns = row.number(6),
               .chain = row.text(7)};
  if (const auto image = row.text(8); !image.empty())
    one.tree = TreeId{.image = Digest::parse(image, "image of a snapshot"), .layers = std::uint32_t(row.number(9))};
  return one;
}

Refusal read_refusal(const SqlRow& row) {
  return {.image = Digest::parse(row.text(0), "image that was refused"),
          .reference = row.text(1),
          .why = row.text(2),
          .at = row.number(3)};
}

TreeId read_tree(const SqlRow& row) {
  return {.image = Digest::parse(row.text(0), "image of a tree"), .layers = std::uint32_t(row.number(1))};
}

std::string image_text(const std::optional<TreeId>& tree) { return tree ? tree->image.to_string() : ""; }
std::int64_t layers_number(const std::optional<TreeId>& tree) { return tree ? std::int64_t(tree->layers) : 0; }

}  // namespace

SnapshotTable::SnapshotTable(const std::filesystem::path& file)
    : sql_(open_sqlite(file.string(), kKind, {.synced = true, .cache_kib = 4096})) {
  migrate_schema(*sql_, kScripts);
}

std::optional<Snapshot> SnapshotTable::find(const std::string& name) {
  std::optional<Snapshot> found;
  sql_->query(std::string(kSelect) + "WHERE s.name = $1", {name},
              [&](const SqlRow& row) { found = read_snapshot(row); });
  return found;
}

std::optional<Snapshot> SnapshotTable::find_placeholder(const std::string& chain, const std::string& parent) {
  std::optional<Snapshot> found;
  sql_->query(std::string(kSelect) + "WHERE s.chain = $1 AND s.chain <> '' AND coalesce(p.name, '') = $2",
              {chain, parent}, [&](const SqlRow& row) { found = read_snapshot(row); });
  return found;
}

bool SnapshotTable::has_children(std::int64_t id) {
  bool found = false;
  sql_->query("SELECT 1 FROM snapshot WHERE parent = $1 LIMIT 1", {id}, [&](const SqlRow&) { found = true; });
  return found;
}

std::vector<Snapshot> SnapshotTable::list(std::int64_t after, std::size_t limit) {
  std::vector<Snapshot> all;
  sql_->query(std::string(kSelect) + "WHERE s.id > $1 ORDER BY s.id LIMIT $2", {after, std::int64_t(limit)},
              [&](const SqlRow& row) { all.push_back(read_snapshot(row)); });
  return all;
}

std::vector<std::int64_t> SnapshotTable::ids() {
  std::vector<std::int64_t> all;
  sql_->query("SELECT id FROM snapshot ORDER BY id", {}, [&](const SqlRow& row) { all.push_back(row.number(0)); });
  return all;
}

SnapshotCounts SnapshotTable::counts() {
  SnapshotCounts counts;
  sql_->query("SELECT kind, chain <> '', count(*) FROM snapshot GROUP BY 1, 2", {}, [&](const SqlRow& row) {
    const auto kind = SnapshotKind(row.number(0));
    auto& count = kind == SnapshotKind::kActive ? counts.active
                  : kind == SnapshotKind::kView ? counts.views
                  : row.number(1) != 0          ? counts.placeholders
                                                : counts.unpacked;
    count += std::uint64_t(row.number(2));
  });
  return counts;
}

std::int64_t SnapshotTable::highest_id() {
  std::int64_t highest = 0;
  sql_->query("SELECT max(id) FROM snapshot", {}, [&](const SqlRow& row) { highest = row.number(0); });
  return highest;
}

void SnapshotTable::add(const Snapshot& snapshot) {
  Transaction transaction(*sql_, Transaction::Kind::kWrite);
  if (find(snapshot.name)) fail<AlreadyExists>("a snapshot {} is there already", snapshot.name);
  std::int64_t parent = 0;
  if (!snapshot.parent.empty()) {
    const auto found = find(snapshot.parent);
    if (!found) fail<NotFound>("there is no snapshot {}, the parent of {}", snapshot.parent, snapshot.name);
    parent = found->id;
  }
  sql_->run(
      "INSERT INTO snapshot (id, name, parent, kind, labels, created_ns, updated_ns, chain, image, layers, bytes, "
      "inodes) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, -1, -1)",
      {snapshot.id, snapshot.name, parent, std::int64_t(snapshot.kind), labels_text(snapshot.labels),
       snapshot.created_ns, snapshot.updated_ns, snapshot.chain, image_text(snapshot.tree),
       layers_number(snapshot.tree)});
  transaction.commit();
}

void SnapshotTable::commit(std::int64_t id, const std::string& name, const Labels& labels, std::int64_t now_ns) {
  Transaction transaction(*sql_, Transaction::Kind::kWrite);
  if (find(name)) fail<AlreadyExists>("a snapshot {} is there already", name);
  sql_->run(
      "UPDATE snapshot SET name = $2, kind = $3, labels = $4, created_ns = $5, updated_ns = $5, image = '', layers = 0 "
      "WHERE id = $1",
      {id, name, std::int64_t(SnapshotKind::kCommitted), labels_text(labels), now_ns});
  transaction.commit();
}

void SnapshotTable::update_labels(std::int64_t id, const Labels& labels, std::int64_t now_ns) {
  sql_->run("UPDATE snapshot SET labels = $2, updated_ns = $3 WHERE id = $1", {id, labels_text(labels), now_ns});
}

void SnapshotTable::remove(std::int64_t id) { sql_->run("DELETE FROM snapshot WHERE id = $1", {id}); }

std::optional<SnapshotUsage> SnapshotTable::usage(std::int64_t id) {
  std::optional<SnapshotUsage> found;
  sql_->query("SELECT bytes, inodes FROM snapshot WHERE id = $1 AND bytes >= 0", {id},
              [&](const SqlRow& row) { found = SnapshotUsage{.bytes = row.number(0), .inodes = row.number(1)}; });
  return found;
}

void SnapshotTable::set_usage(std::int64_t id, const SnapshotUsage& usage) {
  sql_->run("UPDATE snapshot SET bytes = $2, inodes = $3 WHERE id = $1", {id, usage.bytes, usage.inodes});
}

void SnapshotTable::set_tree(std::int64_t id, const TreeId& tree) {
  sql_->run("UPDATE snapshot SET image = $2, layers = $3 WHERE id = $1",
            {id, tree.image.to_string(), std::int64_t(tree.layers)});
}

std::vector<TreeId> SnapshotTable::trees_in_use() {
  std::vector<TreeId> trees;
  sql_->query("SELECT DISTINCT image, layers FROM snapshot WHERE image <> '' AND kind <> $1",
              {std::int64_t(SnapshotKind::kCommitted)}, [&](const SqlRow& row) { trees.push_back(read_tree(row)); });
  return trees;
}

bool SnapshotTable::is_in_use(const TreeId& tree) {
  bool found = false;
  sql_->query("SELECT 1 FROM snapshot WHERE image = $1 AND image <> '' AND layers = $2 AND kind <> $3 LIMIT 1",
              {tree.image.to_string(), std::int64_t(tree.layers), std::int64_t(SnapshotKind::kCommitted)},
              [&](const SqlRow&) { found = true; });
  return found;
}

void SnapshotTable::add_image(const KnownImage& image) {
  const auto digest = image.image.to_string();
  Transaction transaction(*sql_, Transaction::Kind::kWrite);
  sql_->run(
      "INSERT INTO image (image, reference, layers) VALUES ($1, $2, $3) ON CONFLICT (image) DO UPDATE SET reference = "
      "excluded.reference, layers = excluded.layers",
      {digest, image.reference, std::int64_t(image.chain.size())});
  sql_->run("DELETE FROM seed WHERE image = $1", {digest});
  for (std::size_t i = 0; i < image.chain.size(); ++i)
    sql_->run("INSERT INTO seed (chain, image, layers) VALUES ($1, $2, $3)",
              {image.chain[i], digest, std::int64_t(i + 1)});
  sql_->run("DELETE FROM refusal WHERE image = $1", {digest});
  transaction.commit();
}

std::optional<KnownImage> SnapshotTable::find_image(const Digest& image) {
  std::optional<KnownImage> found;
  sql_->query("SELECT reference FROM image WHERE image = $1", {image.to_string()},
              [&](const SqlRow& row) { found = KnownImage{.image = image, .reference = row.text(0), .chain = {}}; });
  if (found)
    sql_->query("SELECT chain FROM seed WHERE image = $1 ORDER BY layers", {image.to_string()},
                [&](const SqlRow& row) { found->chain.push_back(row.text(0)); });
  return found;
}

std::size_t SnapshotTable::images() {
  std::size_t count = 0;
  sql_->query("SELECT count(*) FROM image", {}, [&](const SqlRow& row) { count = std::size_t(row.number(0)); });
  return count;
}

std::vector<Seed> SnapshotTable::seeds(const std::string& chain) {
  std::vector<Seed> all;
  sql_->query(
      "SELECT s.image, s.layers, i.reference FROM seed s JOIN image i ON i.image = s.image WHERE s.chain = $1 ORDER BY "
      "s.layers <> i.layers, s.image",
      {chain},
      [&](const SqlRow& row) { all.push_back({.tree = read_tree(row), .reference = row.text(2), .chain = chain}); });
  return all;
}

void SnapshotTable::add_refusal(const Refusal& refusal) {
  Transaction transaction(*sql_, Transaction::Kind::kWrite);
  sql_->run(
      "INSERT INTO refusal (image, reference, why, at) VALUES ($1, $2, $3, $4) ON CONFLICT (image) DO UPDATE SET "
      "reference = excluded.reference, why = excluded.why, at = excluded.at",
      {refusal.image.to_string(), refusal.reference, refusal.why, refusal.at});
  sql_->run("DELETE FROM refusal WHERE image NOT IN (SELECT image FROM refusal ORDER BY at DESC LIMIT $1)",
            {kMostRefusals});
  transaction.commit();
}

std::optional<Refusal> SnapshotTable::find_refusal(const Digest& image) {
  std::optional<Refusal> found;
  sql_->query("SELECT image, reference, why, at FROM refusal WHERE image = $1", {image.to_string()},
              [&](const SqlRow& row) { found = read_refusal(row); });
  return found;
}

std::vector<Refusal> SnapshotTable::refusals() {
  std::vector<Refusal> all;
  sql_->query("SELECT image, reference, why, at FROM refusal ORDER BY at DESC, image", {},
              [&](const SqlRow& row) { all.push_back(read_refusal(row)); });
  return all;
}

}  // namespace varve::snapshotter
