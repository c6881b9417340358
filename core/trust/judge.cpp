#include "core/trust/judge.h"

#include <utility>

#include "core/base/text/strings.h"
#include "core/trust/tool_version.h"

namespace varve::trust {
namespace {

constexpr std::pair<IndexRule, std::string_view> kRuleNames[] = {
    {IndexRule::kDefault, "default"}, {IndexRule::kSigned, "signed"}, {IndexRule::kPolicy, "policy"},
    {IndexRule::kPinned, "pinned"},   {IndexRule::kAny, "any"},
};

bool covers(std::string_view prefix, std::string_view repository) {
  if (!repository.starts_with(prefix)) return false;
  return repository.size() == prefix.size() || prefix.ends_with('/') || repository[prefix.size()] == '/';
}

std::string words_of(const SignatureFindings& findings) {
  auto text = findings.seen == 0 ? std::string("no signature")
                                 : fmt::format("{} signature{}, none by a key that counts", findings.seen,
                                               findings.seen == 1 ? "" : "s");
  if (!findings.keys_tried.empty()) text += fmt::format(" (tried {})", joined(findings.keys_tried));
  if (!findings.trouble.empty()) text += ": " + findings.trouble;
  return text;
}

}  // namespace

std::string_view to_string(IndexRule rule) {
  for (const auto& [value, name] : kRuleNames)
    if (value == rule) return name;
  return "default";
}

std::optional<IndexRule> parse_index_rule(std::string_view text) {
  for (const auto& [value, name] : kRuleNames)
    if (name == text && value != IndexRule::kDefault) return value;
  return std::nullopt;
}

const TrustScope* TrustSettings::scope_of(std::string_view repository) const {
  const TrustScope* best = nullptr;
  for (const auto& scope : scopes)
    if (covers(scope.prefix, repository) && (best == nullptr || scope.prefix.size() > best->prefix.size()))
      best = &scope;
  return best;
}

Request Request::of(const oci::Image& image) {
  return {.repository = image.repository ? image.repository->name() : "",
          .selector = image.selector,
          .image = image.digest()};
}

Judge::Judge(TrustSettings settings, std::shared_ptr<const SignatureChecker> signatures)
    : settings_(std::move(settings)), signatures_(std::move(signatures)) {}

Judge::Rule Judge::rule_for(const Request& request) const {
  const auto* scope = settings_.scope_of(request.repository);
  const bool is_scoped = scope != nullptr && scope->index;
  const Rule rule{.rule = is_scoped ? *scope->index : settings_.index,
                  .place = is_scoped ? scope->place : settings_.place};
  if (rule.rule != IndexRule::kDefault && rule.rule != IndexRule::kPolicy) return rule;
  const auto demand = signatures_->demand(request);
  return demand.empty() ? rule : Rule{.rule = IndexRule::kSigned, .place = demand, .is_policy = true};
}

ImageVerdict Judge::judge_image(const oci::Image& image, oci::Repository* kept) const {
  return signatures_->check_image(Request::of(image), *image.repository, kept);
}

void Judge::require_image(const oci::Image& image, oci::Repository* kept) const {
  const auto verdict = judge_image(image, kept);
  if (verdict.accepted) return;
  throw Untrusted(fmt::format("{}: image {} is refused by containers' policy{}: {}", image.repository->name(),
                              image.digest().to_string(), verdict.rule.empty() ? "" : " (" + verdict.rule + ")",
                              verdict.refusal));
}

Judgement Judge::judge(const Request& request, const Candidate& candidate,
                       const std::optional<Digest>& first_used) const {
  const auto& digest = candidate.manifest.descriptor.digest;
  const auto& origin = candidate.origin;
  const auto refuse = [](std::string why) {
    return Judgement{.trusted = false, .vouched = false, .rule = {}, .signers = {}, .refusal = std::move(why)};
  };
  if (settings_.deny.contains(digest)) return refuse("the setting [trust] deny names it");
  if (!origin.refuted.empty()) return refuse("it is false: " + origin.refuted);
  if (!settings_.min_tool.empty() && tool_version(candidate.tool) < tool_version(settings_.min_tool))
    return refuse(fmt::format("{} made it, [trust] min-tool is {}",
                              candidate.tool.empty() ? "an unknown tool" : candidate.tool, settings_.min_tool));

  const auto vouched = [](std::string rule, std::vector<std::string> signers = {}) {
    return Judgement{
        .trusted = true, .vouched = true, .rule = std::move(rule), .signers = std::move(signers), .refusal = {}};
  };
  if (origin.built_here) return vouched("built on this machine");
  if (origin.proved) return vouched("proved on this machine by complete layers");
  std::string signatures = "no signature was looked for: no key is configured";
  if (signatures_->has_keys(request)) {
    auto findings = signatures_->check(request, candidate);
    if (!findings.signers.empty()) {
      auto rule = "signed by " + joined(findings.signers);
      return vouched(std::move(rule), std::move(findings.signers));
    }
    signatures = words_of(findings);
  }

  const auto [rule, place, is_policy] = rule_for(request);
  const auto at = place.empty() ? std::string("nothing is configured") : place;
  const auto believed = [&](std::string_view why) {
    return Judgement{
        .trusted = true, .vouched = false, .rule = fmt::format("{} ({})", why, at), .signers = {}, .refusal = {}};
  };
  // What another repository has said is no word of this one.
  const bool of_the_image = candidate.offered_now || origin.repositories.contains(request.repository);
  if (!of_the_image && candidate.index_from.empty()) {
    if (origin.repositories.empty()) return refuse("where it came from is not recorded");
    return refuse(
        fmt::format("it came from {}, not from {}; {}", *origin.repositories.begin(), request.repository, signatures));
  }
  if (!of_the_image)
    if (const auto* scope = settings_.scope_of(candidate.index_from); scope && scope->index == IndexRule::kSigned)
      return refuse(fmt::format("{} of index-from offers it, and {} asks for signatures there; {}",
                                candidate.index_from, scope->place, signatures));
  switch (rule) {
    case IndexRule::kSigned:
      return refuse(signatures);
    case IndexRule::kAny:
      return believed(of_the_image ? "the repository offers it" : candidate.index_from + " of index-from offers it");
    case IndexRule::kPinned:
      if (!first_used) return believed("the first that was seen in its repository");
      if (*first_used == digest) return believed("the one that was first seen in its repository");
      return refuse(fmt::format("{} was seen first in its repository; {}", first_used->to_string(), signatures));
    case IndexRule::kDefault:
    case IndexRule::kPolicy:
      break;
  }
  // Who may write to the image's repository may move its tag as well. Others may not: from them only what is vouched
  // for counts, unless a setting says to believe what is seen first.
  if (!of_the_image)
    return refuse(fmt::format("{} of index-from offers it, which is not the image's own repository; {}",
                              candidate.index_from, signatures));
  if (!request.by_digest()) return believed("asked for by tag, which trusts those who may write to the repository");
  return refuse(signatures);
}

namespace {

// What to type for the image.
std::string typed(const Request& request) {
  return request.repository + (request.selector.empty() ? "" : request.by_digest() ? "@" : ":") + request.selector;
}

}  // namespace

std::string Judge::refusal(const Request& request, const std::vector<std::string>& of_candidates) const {
  const auto [rule, place, is_policy] = rule_for(request);
  auto setting = fmt::format("[trust] index = \"{}\" ({})", to_string(rule), place);
  if (is_policy) setting = place + " demands signatures, of the index as well";
  if (place.empty())
    setting =
        "none; asked for by digest, an index counts if it is signed by a known key, built here, or proved by "
        "complete layers";
  std::string text =
      fmt::format("{}: no index of image {} can be trusted", request.repository, request.image.to_string());
  for (const auto& one : of_candidates) text += "\n  " + one;
  text += "\n  setting: " + setting;
  text += fmt::format(
      "\n  ways out: a key that signed it (`varve keygen`, `varve sign`, then keys = [\"FILE\"] under [trust] in "
      "varve.toml); an index made here (`varve index {}`, or --index-here of `run` and `mount`);"
      " [trust] index = \"pinned\" or \"any\", which believes whoever may write to the repository",
      typed(request));
  return text;
}

}  // namespace varve::trust
