#pragma once
// Versions and sets of version specifiers. PEP 440; packaging.python.org/specifications/version-specifiers.
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace varve::python {

inline constexpr std::size_t kMaxVersionBytes = 512;      // longer texts are no versions
inline constexpr std::size_t kMaxSpecifierBytes = 16384;  // of a whole set

// PEP 440. Absent when the text is no version (then compare it as text, as pip does for legacy ones).
class Version {
 public:
  static std::optional<Version> parse(std::string_view text);
  std::strong_ordering operator<=>(const Version& other) const;
  bool operator==(const Version& other) const;
  const std::string& text() const { return text_; }  // as written
  std::string normalized() const;                    // "1.0rc1+cu118": lower case, short spellings, no leading zeros
  bool is_prerelease() const { return !pre_letter_.empty() || dev_.has_value(); }
  bool is_postrelease() const { return post_.has_value(); }
  bool has_local() const { return !local_.empty(); }

 private:
  friend class SpecifierSet;
  void make_keys();
  std::string_view base_key() const { return std::string_view(public_key_).substr(0, base_size_); }
  std::string_view pre_key() const { return std::string_view(public_key_).substr(0, pre_size_); }
  std::string_view post_key() const { return std::string_view(public_key_).substr(0, post_size_); }

  std::string text_;
  // Numbers are decimal digits without leading zeros, "0" for zero: PEP 440 sets no bound.
  std::string epoch_ = "0";
  std::vector<std::string> release_;
  std::string pre_letter_, pre_number_;  // "a" "b" "rc"
  std::optional<std::string> post_, dev_;
  std::vector<std::string> local_;
  std::string public_key_, local_key_;  // bytes that compare as the versions do; see version.cpp
  std::size_t base_size_ = 0;           // of public_key_: epoch and release
  std::size_t pre_size_ = 0;            // these and the pre-release
  std::size_t post_size_ = 0;           // these and the post-release
};

// "" = any version. Without allow_prereleases, a pre-release satisfies only sets that name one, as pip's resolver has
// it.
class SpecifierSet {
 public:
  // Also in parentheses, as setuptools wrote them once: "(>=1.0,<2)".
  static std::optional<SpecifierSet> parse(std::string_view text);
  bool contains(const Version& version, bool allow_prereleases) const;
  const std::string& text() const { return text_; }
  bool empty() const { return clauses_.empty(); }

 private:
  enum class Operator : std::uint8_t {
    kCompatible,
    kEqual,
    kNotEqual,
    kLessEqual,
    kGreaterEqual,
    kLess,
    kGreater,
    kArbitrary
  };
  struct Clause {
    Operator op = Operator::kEqual;
    Version version;      // of kArbitrary only if its text is one
    bool prefix = false;  // "==1.2.*"
    std::string literal;  // of kArbitrary, lower case
  };
  static std::optional<Clause> parse_clause(std::string_view text);
  static bool holds(const Clause& clause, const Version& version);
  static bool is_prerelease_of(const Version& version, const Version& wanted);
  static bool is_further_build_of(const Version& version, const Version& wanted);
  static bool starts_with(const Version& version, const Version& prefix, std::size_t components);

  std::string text_;
  std::vector<Clause> clauses_;
};

}  // namespace varve::python
