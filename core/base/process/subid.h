#pragma once
// subuid(5), subgid(5): ranges of ids that are a user's beside his own.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace varve {

// Digits alone, of 32 bits.
std::optional<std::uint32_t> parse_id(std::string_view text);

struct SubidRange {
  std::string_view owner;  // a name, or a number
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

// The ranges of "name-or-id:first:count" lines. Lines that do not parse are skipped, as newuidmap does. Ends where
// `each` says false.
void each_subid(std::string_view text, const std::function<bool(const SubidRange&)>& each);
// "" if the file is not there.
std::string read_subids(const std::filesystem::path& file);

// Whose an id is: the user who has it in a range of /etc/subuid, else itself. The first id of the range where nobody
// has that name. Ids that sessions of root have are not root's: they are what root may not be taken for.
std::uint32_t user_behind(std::uint32_t id, std::string_view subuid);

}  // namespace varve
