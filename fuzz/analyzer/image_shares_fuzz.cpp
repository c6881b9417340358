// Shares of images, hostile: refused with a reason, or read and written again as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "analyzer/prune/savings.h"
#include "core/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto shares = prune::parse_image_shares(text, "shares");
    const auto written = prune::to_json(shares);
    const auto again = prune::parse_image_shares(written, "shares");
    if (prune::to_json(again) != written || again.image != shares.image) std::abort();
    prune::Savings savings;
    savings.add(shares);
    savings.add(again);
    if (savings.images() != 2) std::abort();
  } catch (const CorruptData&) {
  } catch (const Unsupported&) {
  }
  return 0;
}
