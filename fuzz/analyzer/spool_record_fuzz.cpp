// One line of a spool. What is read must be written as a line that reads the same, and what is refused must not be
// quoted.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "analyzer/usage/spool.h"
#include "core/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve::usage;
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  SpoolRecord record;
  try {
    record = parse_spool_line(line);
  } catch (const varve::CorruptData& error) {
    // Our own sentences are short and name only our own fields.
    if (std::string_view(error.what()).size() > 120) std::abort();
    return 0;
  }
  std::string written;
  try {
    written = spool_line(record);
  } catch (const varve::CorruptData&) {
    return 0;  // escapes may make a line longer than the one that was read
  }
  written.pop_back();
  if (spool_line(parse_spool_line(written)) != written + "\n") std::abort();
  return 0;
}
