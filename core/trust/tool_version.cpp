#include "core/trust/tool_version.h"

#include <charconv>

namespace varve::trust {

std::string_view this_tool() { return "varve " VARVE_VERSION; }

std::vector<std::uint64_t> tool_version(std::string_view tool) {
  constexpr std::string_view kOurs = "varve ";
  if (!tool.starts_with(kOurs)) return {};
  std::vector<std::uint64_t> numbers;
  const char* at = tool.data() + kOurs.size();
  const char* const end = tool.data() + tool.size();
  while (at != end) {
    std::uint64_t number = 0;
    const auto [after, error] = std::from_chars(at, end, number);
    if (error != std::errc()) break;
    numbers.push_back(number);
    at = after != end && *after == '.' ? after + 1 : end;
  }
  return numbers;
}

bool is_later_than_this(std::string_view tool) { return tool_version(tool) > tool_version(this_tool()); }

}  // namespace varve::trust
