#include "analyzer/usage/internal/process_row.h"

#include <algorithm>

#include "analyzer/usage/snapshot.h"
#include "core/base/text/strings.h"

namespace varve::usage {
Bytes bytes_of_hex(std::string_view lower_case_hex) {
  Bytes bytes(lower_case_hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = std::byte(hex_digit(lower_case_hex[2 * i]) << 4 | hex_digit(lower_case_hex[2 * i + 1]));
  return bytes;
}

Bytes ProcessRow::file_key() const {
  auto key = session_key;
  append(key, process_key);
  return key;
}

void ProcessRow::apply(const std::vector<SpoolRecord>& new_records) {
  for (const auto& record : new_records) {
    lifetime_seconds = std::max(lifetime_seconds, std::int64_t(record.at_seconds));
    if (std::holds_alternative<EndRecord>(record.what)) ended = true;
    const auto* beat = std::get_if<BeatRecord>(&record.what);
    if (beat == nullptr) continue;
    const auto idle = std::int64_t(beat->idle_seconds);
    // Less idle than before: a cell ran in between, and the idle time before it is over.
    if (idle < idle_now && idle_now >= std::int64_t(kGpuIdleThresholdSeconds)) idle_seconds += idle_now;
    idle_now = idle;
  }
}

ProcessRow load_process(SqlConnection& sql, const StartRecord& start) {
  ProcessRow process;
  process.session_key = bytes_of_hex(start.session);
  process.process_key = bytes_of_hex(start.process);
  process.day = start.day;
  process.kernel = start.main == "kernel";
  sql.query(
      "SELECT day, read_bytes, records, head, tail, lifetime_seconds, kernel, idle_seconds, idle_now, ended, node "
      "FROM spool_file WHERE session_key = $1 AND process_key = $2",
      {process.session_key, process.process_key}, [&](const SqlRow& row) {
        process.known = true;
        process.day = row.number(0);
        process.read_bytes = std::uint64_t(row.number(1));
        process.records = std::uint64_t(row.number(2));
        process.head = row.blob(3);
        process.tail = row.blob(4);
        process.lifetime_seconds = row.number(5);
        process.kernel = row.number(6) != 0;
        process.idle_seconds = row.number(7);
        process.idle_now = row.number(8);
        process.ended = row.number(9) != 0;
        process.node = row.text(10);
      });
  return process;
}

void store_process(SqlConnection& sql, const ProcessRow& process) {
  sql.run(
      "INSERT INTO spool_file (session_key, process_key, day, read_bytes, records, head, tail, lifetime_seconds, "
      "kernel, idle_seconds, idle_now, ended, node, owner) "
      "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) "
      "ON CONFLICT (session_key, process_key) DO UPDATE SET read_bytes = excluded.read_bytes, records = "
      "excluded.records, head = excluded.head, tail = excluded.tail, lifetime_seconds = "
      "excluded.lifetime_seconds, idle_seconds = excluded.idle_seconds, idle_now = "
      "excluded.idle_now, ended = excluded.ended",
      {process.session_key, process.process_key, process.day, std::int64_t(process.read_bytes),
       std::int64_t(process.records), process.head, process.tail, process.lifetime_seconds,
       std::int64_t(process.kernel), process.idle_seconds, process.idle_now, std::int64_t(process.ended), process.node,
       process.owner});
}

}  // namespace varve::usage
