#pragma once
// By whom an index was made: "varve 0.12.3".
#include <cstdint>
#include <string_view>
#include <vector>

namespace varve::trust {

// Of this program.
std::string_view this_tool();

// The numbers of "varve 0.12.3"; none for tools that are not ours. Compared as they are, 0.10 comes after 0.9.
std::vector<std::uint64_t> tool_version(std::string_view tool);

// True for versions of ours that this program cannot know. What they say of themselves is no reason to take their
// index.
bool is_later_than_this(std::string_view tool);

}  // namespace varve::trust
