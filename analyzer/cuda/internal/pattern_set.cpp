#include "analyzer/cuda/internal/pattern_set.h"

#include <algorithm>
#include <memory>

#include "analyzer/cuda/rules.h"
#include "core/base/errors.h"
#include "core/base/text/glob.h"
#include "core/base/text/image_path.h"

namespace varve::cuda::internal {
namespace {

constexpr std::size_t kPrefixBytes = 8;

// The end of the group that opens at `open`; npos if it is not closed.
std::size_t closing(std::string_view pattern, std::size_t open) {
  int depth = 0;
  for (auto i = open; i < pattern.size(); ++i) {
    if (pattern[i] == '{') ++depth;
    if (pattern[i] == '}' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

std::vector<std::string> choices_of_group(std::string_view group) {
  std::vector<std::string> choices(1);
  int depth = 0;
  for (const char c : group) {
    if (c == ',' && depth == 0) {
      choices.emplace_back();
      continue;
    }
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    choices.back() += c;
  }
  return choices;
}

std::vector<std::string> choices_of_class(std::string_view bytes) {
  std::vector<std::string> choices;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const unsigned char from = bytes[i];
    unsigned char to = from;
    if (i + 2 < bytes.size() && bytes[i + 1] == '-') {
      to = bytes[i + 2];
      i += 2;
    }
    for (int c = from; c <= to; ++c) choices.emplace_back(1, char(c));
  }
  return choices;
}

}  // namespace

std::vector<std::string> alternatives(std::string_view pattern) {
  std::vector<std::string> done, open = {std::string(pattern)};
  while (!open.empty()) {
    const auto one = std::move(open.back());
    open.pop_back();
    const auto at = one.find_first_of("{[");
    if (at == std::string::npos) {
      done.push_back(one);
      continue;
    }
    const auto end = one[at] == '{' ? closing(one, at) : one.find(']', at);
    if (end == std::string::npos) fail<CorruptData>("pattern '{:.200}': a '{}' is not closed", pattern, one[at]);
    const auto inside = std::string_view(one).substr(at + 1, end - at - 1);
    auto choices = one[at] == '{' ? choices_of_group(inside) : choices_of_class(inside);
    if (choices.empty()) fail<CorruptData>("pattern '{:.200}': '[]' matches nothing", pattern);
    std::ranges::reverse(choices);  // `open` is a stack: the first choice comes out first
    for (const auto& choice : choices) open.push_back(one.substr(0, at) + choice + one.substr(end + 1));
    if (done.size() + open.size() > kMaxPatterns)
      fail<CorruptData>("pattern '{:.200}': more than {} patterns when written out", pattern, kMaxPatterns);
  }
  return done;
}

PatternSet::PatternSet(const std::vector<std::string>& patterns, Slashless slashless, bool ends) {
  for (const auto& pattern : patterns)
    for (auto& one : alternatives(pattern)) add(std::move(one), slashless, ends);
  std::ranges::sort(lengths_);
}

void PatternSet::add(std::string pattern, Slashless slashless, bool ends) {
  while (pattern.ends_with("/**")) pattern.resize(pattern.size() - 3);
  Pattern added;
  added.text = pattern;
  added.last = name_of(pattern);
  added.only_last = pattern.find('/') == std::string::npos && slashless == Slashless::kBaseName;
  if (added.last.find("**") != std::string::npos && !added.only_last)
    added.last = "*";  // it may stand for several parts
  added.whole = ends && !added.only_last && !pattern.starts_with("**/") ? "**/" + pattern : pattern;
  added.literal = added.only_last ? 0 : std::min(added.whole.find_first_of("*?"), added.whole.size());
  const auto literal = std::min({added.last.find_first_of("*?"), added.last.size(), kPrefixBytes});
  const auto prefix = std::string_view(added.last).substr(0, literal);
  auto found = by_prefix_.find(prefix);
  if (found == by_prefix_.end()) {
    prefixes_.push_back(std::make_unique<std::string>(prefix));
    found = by_prefix_.try_emplace(*prefixes_.back()).first;
    if (std::ranges::find(lengths_, literal) == lengths_.end()) lengths_.push_back(literal);
  }
  found->second.push_back(std::move(added));
  ++patterns_;
}

const std::string* PatternSet::match(std::string_view path) const {
  const auto name = name_of(path);
  for (const auto length : lengths_) {
    if (length > name.size()) break;
    const auto found = by_prefix_.find(name.substr(0, length));
    if (found == by_prefix_.end()) continue;
    for (const auto& pattern : found->second) {
      // Fixed beginnings and endings are looked at first: most names fail there.
      if (path.substr(0, pattern.literal) != std::string_view(pattern.whole).substr(0, pattern.literal)) continue;
      const auto last_wild = pattern.last.find_last_of("*?");
      if (last_wild == std::string::npos ? pattern.last != name
                                         : !name.ends_with(std::string_view(pattern.last).substr(last_wild + 1)))
        continue;
      if (!glob_matches(pattern.last, name)) continue;
      if (pattern.only_last || glob_matches(pattern.whole, path)) return &pattern.text;
    }
  }
  return nullptr;
}

}  // namespace varve::cuda::internal
