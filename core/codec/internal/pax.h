#pragma once
// Extended headers ("pax", IEEE 1003.1 "pax Extended Header") and what writers put into them.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/codec/internal/tar_header.h"
#include "core/codec/tar_parser.h"

namespace varve::codec::internal {

struct PaxRecords {
  std::map<std::string, std::string, std::less<>> values;
  std::vector<std::uint64_t> sparse_numbers;  // format 0.0 repeats its keys: offset, length, offset, length, ...

  // nullptr if absent or empty: an empty value means "as if it were not there".
  const std::string* find(std::string_view key) const;
  bool empty() const { return values.empty() && sparse_numbers.empty(); }
};

// Adds the records of one extended header to `into`; a later record beats an earlier one of the same key.
// Throws CorruptData for a record that is cut off or malformed.
void parse_pax(ByteView data, PaxRecords& into, const TarPlace& place);

TarTime parse_pax_time(std::string_view text, std::string_view key, const TarPlace& place);

// Decimal, at most kMaxTarNumber.
std::uint64_t parse_pax_number(std::string_view text, std::string_view key, const TarPlace& place);

// Extended attributes and ACLs of an entry. SCHILY.xattr beats LIBARCHIVE.xattr, and both beat SCHILY.acl text.
std::map<std::string, std::string> xattrs_of(const PaxRecords& records, const TarPlace& place);

}  // namespace varve::codec::internal
