#include "core/base/process/subid.h"

#include <pwd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "core/base/files/file.h"

namespace varve {
namespace {

constexpr std::uint64_t kMaxSubidFileBytes = 4 << 20;

std::optional<SubidRange> parse_line(std::string_view line) {
  const auto first_colon = line.find(':');
  const auto second_colon = line.find(':', first_colon == line.npos ? first_colon : first_colon + 1);
  if (second_colon == line.npos || first_colon == 0) return std::nullopt;
  const auto first = parse_id(line.substr(first_colon + 1, second_colon - first_colon - 1));
  const auto count = parse_id(line.substr(second_colon + 1));
  if (!first || !count || *count == 0 || *first == 0) return std::nullopt;
  constexpr std::uint64_t kIds = std::numeric_limits<std::uint32_t>::max();  // the last one means "no id"
  if (std::uint64_t(*first) + *count > kIds) return std::nullopt;
  return SubidRange{.owner = line.substr(0, first_colon), .first = *first, .count = *count};
}

}  // namespace

std::optional<std::uint32_t> parse_id(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

void each_subid(std::string_view text, const std::function<bool(const SubidRange&)>& each) {
  while (!text.empty()) {
    const auto line_end = std::min(text.find('\n'), text.size());
    const auto range = parse_line(text.substr(0, line_end));
    text.remove_prefix(std::min(line_end + 1, text.size()));
    if (range && !each(*range)) return;
  }
}

std::string read_subids(const std::filesystem::path& file) {
  const auto bytes = read_file_if_there(file, kMaxSubidFileBytes);
  return bytes ? std::string(as_text(*bytes)) : std::string();
}

std::uint32_t user_behind(std::uint32_t id, std::string_view subuid) {
  std::uint32_t user = id;
  each_subid(subuid, [&](const SubidRange& range) {
    if (id < range.first || id - range.first >= range.count) return true;
    const auto* entry = ::getpwnam(std::string(range.owner).c_str());
    user = entry != nullptr ? entry->pw_uid : parse_id(range.owner).value_or(range.first);
    if (user == 0) user = range.first;
    return false;
  });
  return user;
}

}  // namespace varve
