// Response headers of registries: challenges, ranges, links, waiting times, redirect targets.
#include <cstdlib>
#include <string>

#include "core/base/text/base64.h"
#include "core/oci/internal/blob_locations.h"
#include "core/oci/internal/credentials.h"
#include "core/oci/internal/http_headers.h"
#include "core/oci/internal/url.h"

using namespace varve::oci::internal;
using varve::base64_decode;
using varve::base64_encode;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  HttpHeaders headers;
  headers.add_line(text);
  for (const auto& challenge : parse_challenges(text))
    if (challenge.scheme.empty()) std::abort();
  if (const auto range = parse_content_range(text))
    if (range->last < range->first || (range->total && *range->total <= range->last)) std::abort();
  parse_unsatisfied_range(text);
  parse_upload_range(text);
  if (const auto wait = parse_retry_after(text, std::chrono::system_clock::from_time_t(1'700'000'000)))
    if (wait->count() < 0) std::abort();
  const auto next = parse_next_link(text);
  const auto base = *Url::parse("https://registry.example/v2/a/blobs/b");
  for (const auto& reference : {text, next.value_or("")}) {
    const auto url = base.resolve(reference);
    if (!url) continue;
    // What is shown never holds the query; what is kept can be parsed again.
    if (url->shown().find('?') != std::string::npos || !Url::parse(url->text)) std::abort();
    expiry_of(*url);
  }
  if (const auto decoded = base64_decode(text))
    if (base64_decode(base64_encode(*decoded)) != decoded) std::abort();
  return 0;
}
