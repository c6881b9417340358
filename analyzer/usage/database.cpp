#include "analyzer/usage/database.h"

#include "analyzer/usage/internal/collector.h"
#include "analyzer/usage/internal/explain.h"
#include "analyzer/usage/internal/inventory_store.h"
#include "analyzer/usage/internal/notebook_store.h"
#include "analyzer/usage/internal/probe_store.h"
#include "analyzer/usage/internal/retention.h"
#include "analyzer/usage/internal/schema.h"
#include "analyzer/usage/internal/snapshot_reader.h"
#include "analyzer/usage/internal/use_sets.h"
#include "analyzer/usage/internal/writer.h"

namespace varve::usage {
namespace {

class SqlDatabase final : public Database {
 public:
  explicit SqlDatabase(std::unique_ptr<SqlConnection> sql) : sql_(std::move(sql)), writer_(*sql_) {
    migrate(*sql_);
    writer_.complete_older_schema();
  }

  CollectResult collect(const std::vector<std::filesystem::path>& spools, const CollectOptions& options,
                        const CancelFlag& cancel) override {
    return Collector(writer_, options).collect(spools, cancel);
  }
  void put_inventory(const packages::Inventory& inventory, const std::string& label) override {
    store_inventory(writer_, inventory, label);
  }
  void put_scan(const notebooks::ScanResult& scan) override { store_scan(writer_, scan); }
  Snapshot snapshot(const SnapshotQuery& query) override {
    Transaction transaction(*sql_, Transaction::Kind::kRead);
    auto snapshot = SnapshotReader(*sql_, query).read();
    transaction.commit();
    return snapshot;
  }
  Explanation explain(const std::string& name, const SnapshotQuery& query) override {
    Transaction transaction(*sql_, Transaction::Kind::kRead);
    auto explanation = explain_name(*sql_, name, query);
    transaction.commit();
    return explanation;
  }
  void notebooks(const Digest& image, const std::function<void(NotebookImports&&)>& each) override {
    Transaction transaction(*sql_, Transaction::Kind::kRead);
    read_notebook_imports(*sql_, image, each);
    transaction.commit();
  }
  SessionSample sessions(const SnapshotQuery& query, std::uint64_t at_most,
                         const std::function<void(SessionUse&&)>& each) override {
    Transaction transaction(*sql_, Transaction::Kind::kRead);
    const auto sample = read_sessions(*sql_, query, at_most, each);
    transaction.commit();
    return sample;
  }
  SetUse set_use(const SnapshotQuery& query, const std::vector<std::string>& distributions) override {
    Transaction transaction(*sql_, Transaction::Kind::kRead);
    const auto use = read_set_use(*sql_, query, distributions);
    transaction.commit();
    return use;
  }
  void put_probe(const Probe& probe) override { store_probe(writer_, probe); }
  std::optional<Probe> probe(const Digest& image) override {
    Transaction transaction(*sql_, Transaction::Kind::kRead);
    auto probe = read_probe(*sql_, image);
    transaction.commit();
    return probe;
  }
  using Database::age_out;
  AgeResult age_out(const Retention& retention, std::int32_t today, const CancelFlag& cancel) override {
    return usage::age_out(writer_, retention, today, cancel);
  }

 private:
  std::unique_ptr<SqlConnection> sql_;
  Writer writer_;
};

}  // namespace

std::unique_ptr<Database> open_database(const std::string& where) {
  return std::make_unique<SqlDatabase>(open_sql(where, usage_kind()));
}

}  // namespace varve::usage
