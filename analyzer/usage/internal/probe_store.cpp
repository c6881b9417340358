#include "analyzer/usage/internal/probe_store.h"

#include "analyzer/usage/internal/clean_text.h"
#include "core/base/errors.h"

namespace varve::usage {
namespace {

std::int64_t id_of_probe(SqlConnection& sql, const Digest& image) {
  std::int64_t id = 0;
  sql.query("SELECT id FROM probe WHERE digest = $1", {image.to_string()},
            [&](const SqlRow& row) { id = row.number(0); });
  return id;
}

ProbeEdge::Kind edge_kind(const std::string& name, const Digest& image) {
  for (const auto kind : {ProbeEdge::Kind::kLoads, ProbeEdge::Kind::kTries, ProbeEdge::Kind::kRuns})
    if (probe_edge_name(kind) == name) return kind;
  fail<CorruptData>("usage database: the probe of {} has an edge of the kind '{:.40}'", image.to_string(), name);
}

}  // namespace

void store_probe(Writer& writer, const Probe& probe) {
  WriteTransaction transaction(writer);
  auto& sql = writer.sql();
  if (const auto old = id_of_probe(sql, probe.image); old != 0)
    for (const auto* table : {"probe_item WHERE probe_id", "probe_edge WHERE probe_id", "probe WHERE id"})
      sql.run(fmt::format("DELETE FROM {} = $1", table), {old});
  sql.run("INSERT INTO probe (digest, day) VALUES ($1, $2)", {probe.image.to_string(), std::int64_t(probe.day)});
  const auto id = id_of_probe(sql, probe.image);
  std::vector<SqlValue> rows;
  std::int64_t number = 0;
  for (const auto& item : probe.items)
    rows.insert(rows.end(), {id, number++, std::string(probed_kind_name(item.kind)), clean_text(item.name),
                             clean_text(item.distribution), clean_text(item.outcome), clean_text(item.detail),
                             item.missed ? list_text(*item.missed) : std::string()});
  run_rows(sql, "INSERT INTO probe_item (probe_id, number, kind, name, distribution, outcome, detail, missed) VALUES",
           8, "", rows);
  rows.clear();
  for (const auto& edge : probe.edges)
    rows.insert(rows.end(), {id, std::int64_t(edge.item), std::string(probe_edge_name(edge.kind)),
                             clean_text(edge.to_distribution), clean_text(edge.to)});
  run_rows(sql, "INSERT INTO probe_edge (probe_id, item, kind, distribution, module) VALUES", 5, "", rows);
  transaction.commit();
}

std::optional<Probe> read_probe(SqlConnection& sql, const Digest& image) {
  const auto id = id_of_probe(sql, image);
  if (id == 0) return std::nullopt;
  Probe probe{.image = image, .day = 0, .items = {}, .edges = {}};
  sql.query("SELECT day FROM probe WHERE id = $1", {id},
            [&](const SqlRow& row) { probe.day = std::int32_t(row.number(0)); });
  sql.query(
      "SELECT kind, name, distribution, outcome, detail, missed FROM probe_item WHERE probe_id = $1 ORDER BY number",
      {id}, [&](const SqlRow& row) {
        probe.items.push_back({.kind = probed_kind(row.text(0)),
                               .name = row.text(1),
                               .distribution = row.text(2),
                               .outcome = row.text(3),
                               .detail = row.text(4)});
        if (const auto missed = row.text(5); !missed.empty()) probe.items.back().missed = parse_texts(missed);
      });
  sql.query("SELECT item, kind, distribution, module FROM probe_edge WHERE probe_id = $1", {id},
            [&](const SqlRow& row) {
              const auto item = row.number(0);
              if (item < 0 || std::uint64_t(item) >= probe.items.size())
                fail<CorruptData>("usage database: the probe of {} has an edge of item {} of {}", image.to_string(),
                                  item, probe.items.size());
              probe.edges.push_back({.kind = edge_kind(row.text(1), image),
                                     .item = std::uint32_t(item),
                                     .to = row.text(3),
                                     .to_distribution = row.text(2)});
            });
  // The two databases do not order text alike.
  sort_edges(probe.edges);
  return probe;
}

}  // namespace varve::usage
