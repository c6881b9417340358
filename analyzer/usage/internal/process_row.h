#pragma once
// What the database remembers of one spool file: whose it is, how far it was read, and what its process told of its
// time.
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/usage/spool.h"
#include "core/base/bytes.h"
#include "core/sql/connection.h"

namespace varve::usage {

struct ProcessRow {
  Bytes session_key, process_key;  // 16 and 8 bytes
  bool known = false;              // it is in the database
  std::int64_t day = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t records = 0;  // taken in
  Bytes head, tail;           // prints of what was read, see SpoolFile
  std::int64_t lifetime_seconds = 0;
  bool kernel = false;
  std::int64_t idle_seconds = 0;  // in idle times that are over and were long enough to count
  std::int64_t idle_now = 0;      // the current one, as of the last beat
  bool ended = false;
  std::string node;   // which sent it; "": it was read here
  std::string owner;  // Collector::hash_of_user(); "": of nobody whose sessions are limited

  Bytes file_key() const;
  // Lifetime, idle times and end from records in their order.
  void apply(const std::vector<SpoolRecord>& new_records);
};

ProcessRow load_process(SqlConnection& sql, const StartRecord& start);
void store_process(SqlConnection& sql, const ProcessRow& process);
Bytes bytes_of_hex(std::string_view lower_case_hex);

}  // namespace varve::usage
