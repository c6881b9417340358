// Times, digests and media types as they stand in documents of others: none, or what says the same when it is written.
#include <cstdint>
#include <cstdlib>

#include "core/base/digest.h"
#include "core/base/text/calendar.h"
#include "core/oci/descriptor.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto seconds = parse_rfc3339(text))
    if (parse_rfc3339(rfc3339(*seconds)) != seconds) std::abort();
  if (const auto seconds = parse_unix_seconds(text))
    if (parse_unix_seconds(std::to_string(*seconds)) != seconds) std::abort();
  parse_day(text);
  if (const auto digest = Digest::try_parse(text))
    if (Digest::parse(digest->to_string()) != *digest) std::abort();
  oci::parse_layer_media_type(text);
  return 0;
}
