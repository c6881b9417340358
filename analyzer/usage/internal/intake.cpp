#include "analyzer/usage/internal/intake.h"

#include <algorithm>
#include <optional>

#include "analyzer/usage/internal/collector.h"
#include "analyzer/usage/internal/retention.h"
#include "core/base/digest.h"
#include "core/base/errors.h"

namespace varve::usage {
namespace {

constexpr std::int64_t kPartsAtOnce = 16;  // each at most a megabyte
// Each is a row of the quarantine. Who sends a million broken lines is told of some.
constexpr std::size_t kMaxBadLines = 100;

Bytes print_of(ByteView bytes) { return to_bytes(digest_of(bytes).raw()); }

}  // namespace

void Collector::take_intake(CollectResult& total, const CancelFlag& cancel) {
  // What is committed later under an earlier number waits for the next call.
  std::int64_t last = 0;
  for (bool more = true; more;) {
    cancel.throw_if_cancelled();
    auto with_batch = total;
    WriteTransaction transaction(writer_);
    auto& sql = writer_.sql();
    refused_through_ = refused_through(sql);
    std::vector<SentPart> parts;
    sql.query(
        "SELECT id, node, session_key, process_key, start, first_byte, content, before, after, owner FROM intake "
        "WHERE id > $1 AND NOT EXISTS (SELECT 1 FROM node_day WHERE name = node AND day = $2 AND bytes >= $3) "
        "ORDER BY id LIMIT $4",
        {last, today_, kMaxNodeDayBytes, kPartsAtOnce}, [&](const SqlRow& row) {
          parts.push_back({.id = row.number(0),
                           .node = row.text(1),
                           .session_key = row.blob(2),
                           .process_key = row.blob(3),
                           .start = std::string(as_text(row.blob(4))),
                           .first_byte = std::uint64_t(row.number(5)),
                           .content = row.blob(6),
                           .user = row.number(9) < 0 ? std::nullopt : std::optional(std::uint32_t(row.number(9))),
                           .before = row.blob(7),
                           .after = row.blob(8)});
        });
    for (const auto& part : parts) {
      take_part(part, with_batch);
      last = part.id;
      sql.run("DELETE FROM intake WHERE id = $1", {part.id});
      sql.run(
          "INSERT INTO node_day (name, day, bytes) VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE SET "
          "bytes = CASE WHEN node_day.day = excluded.day THEN node_day.bytes ELSE 0 END + excluded.bytes, "
          "day = excluded.day",
          {part.node, today_, std::int64_t(part.content.size())});
    }
    transaction.commit();
    more = !parts.empty();
    total = std::move(with_batch);
  }
}

bool Collector::told_by_another(const ProcessRow& process, const std::string& node) {
  bool found = false;
  writer_.sql().query("SELECT 1 FROM spool_file WHERE session_key = $1 AND node <> $2 LIMIT 1",
                      {process.session_key, node}, [&](const SqlRow&) { found = true; });
  return found;
}

void Collector::take_part(const SentPart& part, CollectResult& result) {
  ++result.files;
  const std::filesystem::path from = "what " + part.node + " sent";
  auto file_key = part.session_key;
  append(file_key, part.process_key);
  const auto refuse = [&](std::string reason) {
    quarantine(from, file_key, {.place = part.first_byte, .reason = std::move(reason)}, result);
  };
  std::optional<StartRecord> start;
  try {
    auto record = parse_spool_line(part.start);
    if (auto* first = std::get_if<StartRecord>(&record.what); first != nullptr) start = std::move(*first);
  } catch (const CorruptData&) {  // no start record, as below
  }
  if (!start) return refuse("its first record is no start record");
  auto process = load_process(writer_.sql(), *start);
  if (process.session_key != part.session_key || process.process_key != part.process_key)
    return refuse("its first record names another session or process");
  if (told_by_another(process, part.node)) return refuse("its session was told by another node");
  process.node = part.node;
  process.owner = hash_of_user(part.user, part.node, process.day);
  if (auto why_not = refusal(*start, process); !why_not.empty()) return refuse(std::move(why_not));
  const auto end = part.first_byte + part.content.size();
  if (end <= process.read_bytes) {
    result.duplicates += std::uint64_t(std::count(part.content.begin(), part.content.end(), std::byte('\n')));
    return;
  }
  if (part.first_byte > process.read_bytes) return refuse("what is before it never came");
  if (part.content.back() != std::byte('\n')) return refuse("it ends within a line");
  // Sent twice, the second time with more: what is known of it must be the same.
  const auto known = process.read_bytes - part.first_byte;
  const auto printed = std::min(process.read_bytes, SpoolFile::kPrintBytes);
  auto prints = process.head;
  append(prints, process.tail);
  const ByteView content(part.content);
  const bool same = known == 0
                        ? part.before == prints
                        : printed <= known && print_of(content.subspan(known - printed, printed)) == process.tail;
  if (process.known && !same) return refuse("its content is not what was read before");

  SpoolRecords records;
  records.end = end;
  const auto text = as_text(content);
  std::size_t too_many = 0;
  for (auto at = std::size_t(known); at < text.size();) {
    const auto line_end = text.find('\n', at);
    const auto place = part.first_byte + at;
    try {
      auto record = parse_spool_line(text.substr(at, line_end - at));
      if (std::holds_alternative<StartRecord>(record.what) != (place == 0))
        fail<CorruptData>("{}",
                          place == 0 ? "its first record is no start record" : "spool record: a second start record");
      records.records.push_back(std::move(record));
    } catch (const CorruptData& error) {
      if (records.bad_lines.size() < kMaxBadLines)
        records.bad_lines.push_back({.place = place, .reason = error.what()});
      else
        ++too_many;
    }
    at = line_end + 1;
  }
  if (too_many != 0)
    records.bad_lines.push_back(
        {.place = part.first_byte, .reason = fmt::format("{} further lines that cannot be read", too_many)});
  records.head = Bytes(part.after.begin(), part.after.begin() + 32);
  records.tail = Bytes(part.after.begin() + 32, part.after.end());
  take_records(from, *start, process, records, result);
}

}  // namespace varve::usage
