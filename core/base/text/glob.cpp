#include "core/base/text/glob.h"

#include <algorithm>
#include <vector>

namespace varve {
namespace {

// One `*`, `**` or "**/" of the pattern, at its place.
std::size_t stars_at(std::string_view pattern, std::size_t at) {
  if (!pattern.substr(at).starts_with("**")) return 1;
  const bool whole_parts = (at == 0 || pattern[at - 1] == '/') && at + 2 < pattern.size() && pattern[at + 2] == '/';
  return whole_parts ? 3 : 2;
}

// Adds the places that are reached without taking a byte. `part_begins`: the text's next byte begins a part of the
// path.
void widen(std::string_view pattern, bool part_begins, std::vector<char>& places) {
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    if (places[at] == 0 || pattern[at] != '*') continue;
    const auto stars = stars_at(pattern, at);
    if (stars < 3 || part_begins) places[at + stars] = 1;
  }
}

// What stands between the wildcards must be in the text, in this order: nearly all texts end here.
bool has_fixed_parts(std::string_view pattern, std::string_view text) {
  std::size_t found = 0;
  for (std::size_t at = 0; at < pattern.size();) {
    if (pattern[at] == '*') {
      at += stars_at(pattern, at);
    } else if (pattern[at] == '?') {
      ++at;
    } else {
      const auto part = pattern.substr(at, pattern.find_first_of("*?", at) - at);
      found = text.find(part, found);
      if (found == text.npos) return false;
      found += part.size();
      at += part.size();
    }
  }
  return true;
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text) {
  const auto literal = std::min(pattern.find_first_of("*?"), pattern.size());
  if (!text.starts_with(pattern.substr(0, literal))) return false;
  if (literal == pattern.size()) return text.size() == pattern.size();
  if (!has_fixed_parts(pattern, text)) return false;

  const auto part_begins = [&](std::size_t i) { return i == 0 || text[i - 1] == '/'; };
  std::vector<char> places(pattern.size() + 1, 0), next(pattern.size() + 1, 0);
  places[literal] = 1;
  widen(pattern, part_begins(literal), places);
  for (auto i = literal; i < text.size(); ++i) {
    std::ranges::fill(next, 0);
    bool alive = false;
    for (std::size_t at = literal; at < pattern.size(); ++at) {
      if (places[at] == 0) continue;
      const bool star = pattern[at] == '*';
      const bool taken = star                 ? stars_at(pattern, at) > 1 || text[i] != '/'
                         : pattern[at] == '?' ? text[i] != '/'
                                              : pattern[at] == text[i];
      if (!taken) continue;
      next[star ? at : at + 1] = 1;
      alive = true;
    }
    if (!alive) return false;
    places.swap(next);
    widen(pattern, part_begins(i + 1), places);
  }
  return places[pattern.size()] != 0;
}

}  // namespace varve
