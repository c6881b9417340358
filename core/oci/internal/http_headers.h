#pragma once
// Response headers and the fields that a registry client acts on (RFC 9110, RFC 8288). Everything here is hostile
// input.
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace varve::oci::internal {

inline constexpr std::size_t kMaxHeaderBytes = 256 * 1024;  // of one response

// Names compare without case; a field may occur several times.
class HttpHeaders {
 public:
  // One line as it came, with or without its line end. Lines without a colon are ignored.
  void add_line(std::string_view line);
  void clear() { fields_.clear(); }
  // The first of that name; absent if there is none.
  std::optional<std::string_view> find(std::string_view name) const;
  std::vector<std::string_view> all(std::string_view name) const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;  // names in lower case
};

bool equal_ignoring_case(std::string_view a, std::string_view b);

// Digits only. Absent on overflow as well.
std::optional<std::uint64_t> parse_decimal(std::string_view text);

// One challenge of WWW-Authenticate (RFC 9110, 11.6.1). Scheme and parameter names in lower case.
struct Challenge {
  std::string scheme;
  std::map<std::string, std::string> parameters;
};
// All challenges of one field value; what cannot be read ends the list.
std::vector<Challenge> parse_challenges(std::string_view value);

// "bytes 0-99/1000": last is inclusive; total is absent for "*".
struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::optional<std::uint64_t> total;
};
std::optional<ContentRange> parse_content_range(std::string_view value);
// The total of "bytes */1000", as 416 has it.
std::optional<std::uint64_t> parse_unsatisfied_range(std::string_view value);
// Last byte of "0-1023", as upload answers have it in Range.
std::optional<std::uint64_t> parse_upload_range(std::string_view value);

// The target of the first link with rel="next"; it may be relative.
std::optional<std::string> parse_next_link(std::string_view value);

// Seconds, or a date minus `now`; never negative.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view value,
                                                      std::chrono::system_clock::time_point now);

}  // namespace varve::oci::internal
