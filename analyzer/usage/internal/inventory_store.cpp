#include "analyzer/usage/internal/inventory_store.h"

#include <algorithm>
#include <map>

#include "analyzer/usage/internal/clean_text.h"
#include "analyzer/usage/internal/session_rows.h"
#include "core/base/errors.h"

namespace varve::usage {
namespace {

constexpr std::size_t kRowsAtOnce = 4096;

// Collects rows and writes them in pieces, so that a large inventory is never held twice.
class Rows {
 public:
  Rows(SqlConnection& sql, std::string head, std::size_t columns, std::string tail = {})
      : sql_(sql), head_(std::move(head)), columns_(columns), tail_(std::move(tail)) {}
  void add(std::initializer_list<SqlValue> row) {
    values_.insert(values_.end(), row);
    if (values_.size() >= kRowsAtOnce * columns_) write();
  }
  void write() {
    run_rows(sql_, head_, columns_, tail_, values_);
    values_.clear();
  }

 private:
  SqlConnection& sql_;
  std::string head_;
  std::size_t columns_;
  std::string tail_;
  std::vector<SqlValue> values_;
};

// The distribution that counts for each entry of the inventory: what another one vendored is part of that one.
std::vector<std::int64_t> distribution_ids(Writer& writer, const packages::Inventory& inventory) {
  std::vector<std::int64_t> ids;
  for (const auto& entry : inventory.distributions)
    ids.push_back(
        writer.distributions().id_of(clean_text(entry.vendored_by.empty() ? entry.normalized : entry.vendored_by)));
  return ids;
}

void store_packages(SqlConnection& sql, std::int64_t image, const packages::Inventory& inventory,
                    const std::vector<std::int64_t>& ids) {
  Rows rows(sql,
            "INSERT INTO package (image_id, number, distribution_id, version, source, files, bytes, compressed_bytes, "
            "gpu, layers, imports, required) VALUES",
            12);
  for (std::size_t i = 0; i < inventory.distributions.size(); ++i) {
    const auto& entry = inventory.distributions[i];
    if (!entry.vendored_by.empty()) continue;
    std::vector<std::string> required;
    for (const auto& need : entry.needs)
      if (need.applies) required.push_back(need.requirement.normalized);
    std::sort(required.begin(), required.end());
    required.erase(std::unique(required.begin(), required.end()), required.end());
    rows.add({image, std::int64_t(i), ids[i], clean_text(entry.version),
              std::string(packages::source_name(entry.source)), std::int64_t(entry.files), std::int64_t(entry.bytes),
              std::int64_t(entry.compressed_bytes), std::int64_t(entry.gpu), list_text(entry.layers),
              list_text(entry.imports), list_text(required)});
    sql.run("UPDATE distribution SET display_name = $2 WHERE id = $1", {ids[i], clean_text(entry.name)});
  }
  rows.write();
}

void store_owners(SqlConnection& sql, const char* head, std::int64_t image, const auto& owners,
                  const std::vector<std::int64_t>& ids) {
  Rows rows(sql, head, 3, "ON CONFLICT DO NOTHING");  // two entries may count for the same distribution
  for (const auto& [name, entries] : owners)
    for (const auto entry : entries)
      if (entry < ids.size()) rows.add({image, clean_text(name), ids[entry]});
  rows.write();
}

void store_layers(SqlConnection& sql, std::int64_t image, const packages::Inventory& inventory) {
  std::int64_t number = 0;
  for (const auto& layer : inventory.layers)
    sql.run(
        "INSERT INTO layer (image_id, number, digest, compressed_bytes, stream_bytes, created_by) "
        "VALUES ($1, $2, $3, $4, $5, $6)",
        {image, number++, layer.digest.to_string(), std::int64_t(layer.compressed_bytes),
         std::int64_t(layer.stream_bytes), clean_text(layer.created_by)});
}

// Paths that waited for this inventory become evidence about their owners; the paths themselves are not kept.
void place_paths(Writer& writer, std::int64_t image) {
  auto& sql = writer.sql();
  const auto& resolver = writer.resolver(image);
  std::map<std::int64_t, SessionRows> files;
  sql.query(
      "SELECT session_id, path, flags FROM session JOIN session_path ON session_id = session.id "
      "JOIN pending_path ON pending_path.id = path_id WHERE image_id = $1",
      {image}, [&](const SqlRow& row) {
        for (const auto owner : resolver.of_path(row.text(1)))
          files[row.number(0)].add(SessionTable::kFile, {owner}, row.number(2));
      });
  for (auto& [session, rows] : files) rows.store(sql, session);
  sql.run("DELETE FROM session_path WHERE session_id IN (SELECT id FROM session WHERE image_id = $1)", {image});
  sql.run("DELETE FROM pending_path WHERE NOT EXISTS (SELECT 1 FROM session_path WHERE path_id = pending_path.id)");
}

std::vector<std::int64_t> sessions_of(SqlConnection& sql, std::int64_t image) {
  std::vector<std::int64_t> sessions;
  sql.query("SELECT id FROM session WHERE image_id = $1", {image},
            [&](const SqlRow& row) { sessions.push_back(row.number(0)); });
  return sessions;
}

void reveal_names(Writer& writer, const packages::Inventory& inventory) {
  std::vector<std::string> names;
  for (const auto& [name, owners] : inventory.modules) names.push_back(clean_text(name));
  for (const auto& entry : inventory.distributions) {
    names.push_back(clean_text(entry.name));
    names.push_back(clean_text(entry.normalized));
  }
  writer.failed_names().reveal(names);
}

}  // namespace

void store_inventory(Writer& writer, const packages::Inventory& inventory, const std::string& label) {
  if (!inventory.image)
    fail<UsageError>("usage database: the packages of a plain folder cannot be stored, only those of an image");
  WriteTransaction transaction(writer);
  auto& sql = writer.sql();
  const auto image = writer.image_id(inventory.image->to_string());
  writer.recount(sessions_of(sql, image));
  for (const auto* table : {"package", "image_module", "module_owner", "image_path", "layer"})
    sql.run(fmt::format("DELETE FROM {} WHERE image_id = $1", table), {image});
  const auto ids = distribution_ids(writer, inventory);
  store_packages(sql, image, inventory, ids);
  store_owners(sql, "INSERT INTO image_module (image_id, name, distribution_id) VALUES", image, inventory.modules, ids);
  store_owners(sql, "INSERT INTO image_path (image_id, prefix, distribution_id) VALUES", image, inventory.path_owners,
               ids);
  store_layers(sql, image, inventory);
  const auto python =
      inventory.interpreters.empty() ? std::string() : clean_text(inventory.interpreters.front().version);
  sql.run("UPDATE image SET has_inventory = 1, python = $2 WHERE id = $1", {image, python});
  if (!label.empty()) sql.run("UPDATE image SET label = $2 WHERE id = $1", {image, clean_text(label)});
  writer.forget_resolver(image);
  place_paths(writer, image);
  reveal_names(writer, inventory);
  transaction.commit();
  writer.names_were_removed();
}

}  // namespace varve::usage
