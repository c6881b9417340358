#pragma once
// Many patterns against many paths: a path is looked at only by patterns that its base name can match.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace varve::cuda::internal {

// {a,b} and [ab], [0-9] written out, nested too. Throws CorruptData naming the pattern for more than kMaxPatterns, or
// brackets that are not closed.
std::vector<std::string> alternatives(std::string_view pattern);

class PatternSet {
 public:
  enum class Slashless : std::uint8_t { kBaseName, kPath };  // what a pattern without "/" is over
  // `ends`: a pattern with "/" is the end of a path. "/**" at the end of a pattern is dropped: callers take all that is
  // below a match.
  explicit PatternSet(const std::vector<std::string>& patterns, Slashless slashless, bool ends = false);
  // The first matching pattern, written out; null if none. Lives as long as the set.
  const std::string* match(std::string_view path) const;
  bool empty() const { return patterns_ == 0; }

 private:
  struct Pattern {
    std::string whole, last;  // `last`: of its last part, what the base name must match
    std::size_t literal = 0;  // bytes of `whole` before its first wildcard
    bool only_last = false;
    std::string text;
  };
  void add(std::string pattern, Slashless slashless, bool ends);

  std::unordered_map<std::string_view, std::vector<Pattern>>
      by_prefix_;  // by the first bytes of `last` that are no wildcards
  std::vector<std::unique_ptr<std::string>> prefixes_;
  std::vector<std::size_t> lengths_;  // of the prefixes
  std::size_t patterns_ = 0;
};

}  // namespace varve::cuda::internal
