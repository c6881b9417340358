// Sets of version specifiers: the other half of version.h.
#include <utility>

#include "analyzer/python/internal/text.h"
#include "analyzer/python/version.h"

namespace varve::python {

std::optional<SpecifierSet::Clause> SpecifierSet::parse_clause(std::string_view text) {
  static constexpr std::pair<std::string_view, Operator> kOperators[] = {
      {"===", Operator::kArbitrary}, {"~=", Operator::kCompatible}, {"==", Operator::kEqual},
      {"!=", Operator::kNotEqual},   {"<=", Operator::kLessEqual},  {">=", Operator::kGreaterEqual},
      {"<", Operator::kLess},        {">", Operator::kGreater}};
  const auto* found =
      std::ranges::find_if(kOperators, [&](const auto& known) { return text.starts_with(known.first); });
  if (found == std::end(kOperators)) return std::nullopt;
  text = trim(text.substr(found->first.size()));
  Clause out;
  out.op = found->second;
  if (out.op == Operator::kArbitrary) {
    if (std::ranges::any_of(text, [](char c) { return is_space(c) || c == ';' || c == ')'; })) return std::nullopt;
    out.literal = to_lower(text);
    if (auto version = Version::parse(text)) out.version = std::move(*version);
    return out;
  }
  const bool equality = out.op == Operator::kEqual || out.op == Operator::kNotEqual;
  if (equality && text.ends_with(".*")) {
    out.prefix = true;
    text.remove_suffix(2);
  }
  auto version = Version::parse(text);
  if (!version) return std::nullopt;
  const bool plain_release =
      version->pre_letter_.empty() && !version->post_ && !version->dev_ && version->local_.empty();
  if (out.prefix && (!plain_release || is_space(text.back()))) return std::nullopt;
  if (!equality && version->has_local()) return std::nullopt;
  if (out.op == Operator::kCompatible && version->release_.size() < 2) return std::nullopt;
  out.version = std::move(*version);
  return out;
}

std::optional<SpecifierSet> SpecifierSet::parse(std::string_view text) {
  if (text.size() > kMaxSpecifierBytes) return std::nullopt;
  text = trim(text);
  SpecifierSet out;
  out.text_ = text;
  if (text.starts_with('(') && text.ends_with(')') && text.size() >= 2) text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const auto part = trim(take_until(text, ','));
    if (part.empty()) continue;
    auto clause = parse_clause(part);
    if (!clause) return std::nullopt;
    out.clauses_.push_back(std::move(*clause));
  }
  return out;
}

// Missing components count as zeros: "1" lies in "1.0.*".
bool SpecifierSet::starts_with(const Version& version, const Version& prefix, std::size_t components) {
  if (version.epoch_ != prefix.epoch_) return false;
  for (std::size_t i = 0; i < components; ++i) {
    const std::string_view have = i < version.release_.size() ? std::string_view(version.release_[i]) : "0";
    if (have != prefix.release_[i]) return false;
  }
  return true;
}

// "<2" leaves out 2rc1, "<2.post1" leaves out 2.post1.dev0; what names a pre-release itself leaves out nothing.
bool SpecifierSet::is_prerelease_of(const Version& version, const Version& wanted) {
  if (!version.is_prerelease() || wanted.is_prerelease()) return false;
  return wanted.is_postrelease() ? version.post_key() == wanted.post_key() : version.base_key() == wanted.base_key();
}

// ">2" leaves out 2.post1 and 2+local.
bool SpecifierSet::is_further_build_of(const Version& version, const Version& wanted) {
  if (version.has_local() && version.public_key_ == wanted.public_key_) return true;
  return version.is_postrelease() && !wanted.is_postrelease() && version.pre_key() == wanted.pre_key();
}

bool SpecifierSet::holds(const Clause& clause, const Version& version) {
  const auto& wanted = clause.version;
  const auto equal = [&] {
    if (clause.prefix) return starts_with(version, wanted, wanted.release_.size());
    // A local label counts only where the specifier names one.
    return wanted.has_local() ? version == wanted : version.public_key_ == wanted.public_key_;
  };
  switch (clause.op) {
    case Operator::kEqual:
      return equal();
    case Operator::kNotEqual:
      return !equal();
    case Operator::kLessEqual:
      return version.public_key_ <= wanted.public_key_;
    case Operator::kGreaterEqual:
      return version.public_key_ >= wanted.public_key_;
    case Operator::kCompatible:
      return version.public_key_ >= wanted.public_key_ && starts_with(version, wanted, wanted.release_.size() - 1);
    case Operator::kLess:
      return version < wanted && !is_prerelease_of(version, wanted);
    case Operator::kGreater:
      return version > wanted && !is_further_build_of(version, wanted);
    case Operator::kArbitrary:
      return to_lower(version.text()) == clause.literal || version.normalized() == clause.literal;
  }
  return false;
}

bool SpecifierSet::contains(const Version& version, bool allow_prereleases) const {
  const auto names_prerelease = [](const Clause& clause) {
    return clause.op != Operator::kNotEqual && clause.version.is_prerelease();
  };
  if (version.is_prerelease() && !allow_prereleases && std::ranges::none_of(clauses_, names_prerelease)) return false;
  return std::ranges::all_of(clauses_, [&](const Clause& clause) { return holds(clause, version); });
}

}  // namespace varve::python
