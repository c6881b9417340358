#pragma once
// Which of the names that there are somebody may have meant.
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace varve {

// Steps from one name to the other: letters changed, left out or put in.
std::size_t edit_distance(std::string_view one, std::string_view other);

// At most so many of the candidates, the nearest first and each once: those that hold the name or are held by it, and
// those that are two steps away, or half the length of the name.
std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> candidates,
                                       std::size_t most = 5);

// "; did you mean numpy, numba", or nothing: the end of a message about a name that is none.
std::string did_you_mean(std::string_view name, std::vector<std::string> candidates, std::size_t most = 5);

}  // namespace varve
