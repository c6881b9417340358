// Rule files as somebody may write them: read or refused with a message, and each rule that was taken says why and
// whose it is.
#include <cstdlib>

#include "analyzer/prune/keep_rules.h"
#include "core/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  try {
    const auto rules = prune::parse_keep_rules({reinterpret_cast<const char*>(data), size}, "input");
    for (const auto& rule : rules.rules)
      require(!rule.reason.empty() && !rule.owner.empty() && !(rule.names.empty() && rule.paths.empty()) &&
              rule.place.starts_with("input:"));
    for (const auto& waiver : rules.waivers)
      require(!waiver.waiver.gate.empty() && !waiver.waiver.reason.empty() && !waiver.waiver.owner.empty());
    for (const auto& consumer : rules.consumers) require(!consumer.group.empty() && !consumer.distribution.empty());
  } catch (const Error&) {
    // Refused with a message of ours; anything else thrown is a finding.
  }
  return 0;
}
