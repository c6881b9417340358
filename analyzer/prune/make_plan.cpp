#include "analyzer/prune/make_plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "analyzer/report/report.h"
#include "analyzer/report/text.h"
#include "core/base/errors.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"

namespace varve::prune {
namespace {

using report::count_text;
using report::number_text;

constexpr std::size_t kMaxReasons = 12;  // of one distribution; the others are counted in the last
constexpr std::size_t kMaxReasonText = 400;
constexpr std::size_t kMaxVersion = 100;
constexpr std::size_t kNamedUnsure = 8;  // names in one sentence

// What is known of one distribution's use.
struct Evidence {
  std::uint64_t heard = 0, launched = 0;  // sessions on images that have it
  std::uint64_t uses = 0;                 // sessions that used it in some way, at least
  std::uint64_t uses_at_most = 0;
  usage::UserCount users;
  std::uint64_t notebooks = 0;  // that import it
  bool is_known = false;        // the database has it on some image, so that what is imported could be told to be it
  bool can_be_seen = true;      // it has something to import, or file accesses were collected
  double bound = 1;             // of its share, at 95 %
  bool used() const { return uses_at_most > 0 || notebooks > 0; }
};

std::string percent(double share) { return report::percent_text(share); }

class PlanMaker {
 public:
  explicit PlanMaker(const PlanInput& input) : in_(input), thresholds_(input.thresholds) {
    const auto& t = thresholds_;
    if (!(t.max_rate > 0 && t.max_rate <= 1)) fail<UsageError>("max-rate: {} is not above 0 and up to 1", t.max_rate);
    if (!(t.min_coverage >= 0 && t.min_coverage <= 1))
      fail<UsageError>("min-coverage: {} is not from 0 to 1", t.min_coverage);
    if (t.cold_below_users == 0) fail<UsageError>("cold-below-users: at least 1: what nobody used");
    if (t.archive_after < 0) fail<UsageError>("archive-after: {} days", t.archive_after);
    for (const auto& image : in_.snapshot.images) images_.emplace(image.digest, &image);
    for (const auto& use : in_.snapshot.distributions) {
      uses_.emplace(use.name, &use);
      files_are_seen_ = files_are_seen_ || use.file_sessions > 0 || use.exec_sessions > 0;
    }
    for (const auto& image : in_.snapshot.images) heard_ += image.heard;
    days_ = std::uint64_t(
        std::max<std::int64_t>(0, std::int64_t(in_.snapshot.window.last) - in_.snapshot.window.first + 1));
  }

  MadePlan make() {
    auto& plan = made_.plan;
    plan.image = in_.image;
    plan.reference = in_.reference;
    plan.window = in_.snapshot.window;
    plan.made_on = in_.today;
    plan.sessions = by_notebooks() ? in_.snapshot.notebooks_distinct : heard_;
    plan.parameters = parameters();
    plan.waivers = in_.waivers;
    collect_evidence();
    judge_alone();
    propagated_ = propagate(in_.graph, own_);
    collect_holders();
    for (std::uint32_t node = 0; node < in_.nodes.count(); ++node) plan.verdicts.push_back(planned(node));
    for (const auto& one : plan.verdicts) {
      if (one.verdict >= Verdict::kCold) plan.cold_bytes += one.compressed_bytes;
    }
    say_what_is_unsure();
    return std::move(made_);
  }

 private:
  bool by_notebooks() const { return thresholds_.basis == Basis::kNotebooks; }
  const char* sample(std::uint64_t count) const {
    return by_notebooks() ? (count == 1 ? "notebook" : "notebooks") : (count == 1 ? "session" : "sessions");
  }

  std::map<std::string, std::string> parameters() const {
    const auto& t = thresholds_;
    return {{"basis", by_notebooks() ? "notebooks" : "sessions"},
            {"max-rate", fmt::format("{}", t.max_rate)},
            {"min-coverage", fmt::format("{}", t.min_coverage)},
            {"watch-below-users", std::to_string(t.watch_below_users)},
            {"cold-below-users", std::to_string(t.cold_below_users)},
            {"archive-after", t.archive_after == 0 ? "never" : fmt::format("{}d", t.archive_after)},
            {"window", fmt::format("{}..{}", day_text(in_.snapshot.window.first), day_text(in_.snapshot.window.last))}};
  }

  void collect_evidence() {
    for (const auto& node : in_.nodes.all()) {
      Evidence evidence;
      const auto found = uses_.find(node.name);
      const bool has_imports = std::ranges::any_of(node.members, [&](std::uint32_t member) {
        return !in_.nodes.inventory().distributions[member].imports.empty();
      });
      evidence.can_be_seen = has_imports || (files_are_seen_ && !by_notebooks());
      if (found != uses_.end()) add_use(*found->second, evidence);
      const auto shares = by_notebooks() ? in_.snapshot.notebooks_distinct : evidence.heard;
      const auto count = by_notebooks() ? evidence.notebooks : evidence.uses_at_most;
      evidence.bound = report::upper_bound(std::min(count, shares), shares).value_or(1);
      evidence_.push_back(evidence);
    }
  }

  void add_use(const usage::DistributionUse& use, Evidence& evidence) const {
    evidence.is_known = !use.packages.empty();
    std::set<Digest> counted;
    for (const auto& package : use.packages) {
      const auto image = images_.find(package.image);
      if (image == images_.end() || !counted.insert(package.image).second) continue;
      evidence.heard += image->second->heard;
      evidence.launched += std::max(image->second->launched, image->second->heard);
    }
    // The kinds of evidence may be of the same sessions or of others.
    evidence.uses = std::max({use.sessions, use.file_sessions, use.exec_sessions, use.static_sessions});
    evidence.uses_at_most = use.sessions + use.file_sessions + use.exec_sessions + use.static_sessions;
    evidence.users = use.users;
    if (evidence.uses > 0) {
      evidence.users.at_least = std::max<std::uint64_t>(evidence.users.at_least, 1);
      // Sessions without a user hash: each may be somebody else.
      if (evidence.users.at_most == 0)
        evidence.users.at_most = std::max(evidence.users.at_least, evidence.uses_at_most);
    }
    evidence.notebooks = use.notebooks;
  }

  struct Judged {
    Verdict verdict = Verdict::kHot;
    Reason reason;
  };

  static Judged judged(Verdict verdict, std::string kind, std::string text) {
    return {.verdict = verdict, .reason = {.kind = std::move(kind), .by = "", .text = std::move(text)}};
  }

  std::string over_days() const {
    return by_notebooks() ? std::string() : fmt::format(" of {}", count_text(days_, "day", "days"));
  }

  std::string counted(std::uint64_t uses, std::uint64_t out_of, double bound) const {
    return fmt::format("{} in {} {}{}, at most {} at 95 %", count_text(uses, "use", "uses"), number_text(out_of),
                       sample(out_of), over_days(), percent(bound));
  }

  // What a distribution would be if nothing held it.
  Judged judge(const Evidence& evidence) const {
    const auto out_of = by_notebooks() ? in_.snapshot.notebooks_distinct : evidence.heard;
    const auto uses = by_notebooks() ? evidence.notebooks : evidence.uses;
    const auto& t = thresholds_;
    const bool rare = evidence.bound <= t.max_rate;
    if (evidence.used()) return judge_used(evidence, out_of, uses, rare);
    if (out_of == 0 || !evidence.is_known) {
      const auto* why = !evidence.is_known ? "the usage database knows no image that has it"
                        : by_notebooks()   ? "no notebook was scanned"
                                           : "no session was heard on an image that has it";
      return judged(Verdict::kHot, "new", fmt::format("{}: no data, which is not no use", why));
    }
    if (!evidence.can_be_seen)
      return judged(Verdict::kWatch, "no-data",
                    "it has nothing to import, and no file accesses were collected that could show its use");
    if (!by_notebooks() && double(evidence.heard) < t.min_coverage * double(evidence.launched))
      return judged(Verdict::kWatch, "unsure",
                    fmt::format("{}; but only {} of {} launched sessions were heard, and {} must be",
                                counted(0, out_of, evidence.bound), number_text(evidence.heard),
                                number_text(evidence.launched), percent(t.min_coverage)));
    if (!rare)
      return judged(
          Verdict::kWatch, "unsure",
          fmt::format("{}: too few to say that it is below {}; {} are needed", counted(0, out_of, evidence.bound),
                      percent(t.max_rate), number_text(std::uint64_t(std::ceil(3 / t.max_rate - 1e-9)))));
    return judged(Verdict::kCold, "unused", counted(0, out_of, evidence.bound));
  }

  Judged judge_used(const Evidence& evidence, std::uint64_t out_of, std::uint64_t uses, bool rare) const {
    const auto& t = thresholds_;
    if (!by_notebooks() && evidence.uses == 0) {
      // Named by notebooks that were scanned, and seen in no session.
      const auto scanned = in_.snapshot.notebooks_distinct;
      const auto bound = report::upper_bound(std::min(evidence.notebooks, scanned), scanned).value_or(1);
      return judged(bound <= t.max_rate && rare ? Verdict::kWatch : Verdict::kHot, "notebooks",
                    fmt::format("named by {} of {} scanned notebooks; {}", number_text(evidence.notebooks),
                                number_text(scanned), counted(0, out_of, evidence.bound)));
    }
    auto text = counted(uses, out_of, evidence.bound);
    if (by_notebooks() && evidence.uses > 0)
      text += fmt::format(", and used in {}", count_text(evidence.uses, "session", "sessions"));
    if (!by_notebooks() && evidence.notebooks > 0)
      text += fmt::format(", and named by {}", count_text(evidence.notebooks, "scanned notebook", "scanned notebooks"));
    const auto people = by_notebooks() ? std::max(evidence.notebooks, evidence.users.at_most) : evidence.users.at_most;
    if (!by_notebooks()) text += fmt::format(", by {}", count_text(people, "user at most", "users at most"));
    if (!rare || out_of == 0) return judged(Verdict::kHot, "used", text);
    if (people < t.cold_below_users)
      return judged(Verdict::kCold, "few-users",
                    text + fmt::format(": fewer than {}", number_text(t.cold_below_users)));
    if (people < t.watch_below_users)
      return judged(Verdict::kWatch, "few-users",
                    text + fmt::format(": fewer than {}", number_text(t.watch_below_users)));
    return judged(Verdict::kHot, "used", text);
  }

  const PlannedDistribution* previously(const Node& node) const {
    if (in_.previous == nullptr) return nullptr;
    const auto found =
        std::ranges::lower_bound(in_.previous->verdicts, std::tie(node.name, node.source), {},
                                 [](const PlannedDistribution& one) { return std::tie(one.name, one.source); });
    return found != in_.previous->verdicts.end() && found->name == node.name && found->source == node.source ? &*found
                                                                                                             : nullptr;
  }

  void judge_alone() {
    roots_of_.resize(in_.nodes.count());
    for (const auto& root : in_.roots) roots_of_.at(root.node).push_back(&root);
    own_.assign(in_.graph.nodes(), Verdict::kArchived);
    for (std::uint32_t i = 0; i < in_.nodes.count(); ++i) {
      auto alone = judge(evidence_[i]);
      const auto* before = previously(in_.nodes.all()[i]);
      const bool was_cold = before != nullptr && before->verdict >= Verdict::kCold;
      if (was_cold && evidence_[i].used() && alone.verdict >= Verdict::kCold)
        alone.verdict = Verdict::kWatch;  // any use promotes
      if (was_cold && evidence_[i].used())
        promoted_.emplace(
            i, Reason{.kind = "promoted",
                      .by = "",
                      .text = fmt::format("was {} in the plan of {}, and was used", verdict_name(before->verdict),
                                          day_text(in_.previous->made_on))});
      unused_.push_back(unused(evidence_[i], alone, before));
      if (thresholds_.archive_after > 0 && alone.verdict == Verdict::kCold && was_cold && unused_[i].since != 0 &&
          unused_[i].days >= std::uint64_t(thresholds_.archive_after)) {
        alone.verdict = Verdict::kArchived;
        alone.reason.text += fmt::format("; no use since the plan of {} recorded it, on {} with sessions",
                                         day_text(unused_[i].since), count_text(unused_[i].days, "day", "days"));
      }
      own_[i] = alone.verdict;
      for (const auto* root : roots_of_[i]) own_[i] = std::min(own_[i], root->least);
      alone_.push_back(std::move(alone));
    }
  }

  // The day on which a plan first saw no use, as long as no day between plans went unlooked at, and on how many days
  // since then somebody could have shown one. Days that the plan before has seen are not counted again.
  struct Unused {
    std::int32_t since = 0;
    std::uint64_t days = 0;
  };

  Unused unused(const Evidence& evidence, const Judged& alone, const PlannedDistribution* before) const {
    if (evidence.used() || alone.reason.kind != "unused") return {};
    const bool seamless =
        before != nullptr && before->unused_since != 0 && in_.snapshot.window.first <= in_.previous->window.last + 1;
    if (!seamless) return {.since = in_.today};
    const auto seen = std::max(in_.previous->window.last, before->unused_since);
    const auto more = std::ranges::count_if(
        in_.snapshot.heard_days, [&](const usage::DayCount& one) { return one.day > seen && one.sessions > 0; });
    return {.since = before->unused_since, .days = before->unused_days + std::uint64_t(more)};
  }

  void collect_holders() {
    holders_.resize(in_.nodes.count());
    for (std::size_t number = 0; number < in_.graph.edges.size(); ++number) {
      const auto& edge = in_.graph.edges[number];
      // Of what needs it, those that are at least as hot: the others hold nothing, and an extra nothing that nobody
      // asks for.
      if (edge.from >= in_.nodes.count() && !propagated_[edge.from].by) continue;
      if (edge.to >= in_.nodes.count() || edge.soft || propagated_[edge.from].verdict > propagated_[edge.to].verdict)
        continue;
      holders_[edge.to].push_back(number);
    }
  }

  std::uint32_t distribution_of(std::uint32_t node) const {
    return node < in_.nodes.count() ? node : in_.graph.extras[node - in_.nodes.count()].of;
  }

  Reason reason_of(const Edge& edge) const {
    Reason reason{.kind = std::string(edge_kind_name(edge.kind)),
                  .by = in_.nodes.all()[distribution_of(edge.from)].name,
                  .text = edge.text};
    if (edge.from >= in_.nodes.count()) reason.text += who_asks_for(propagated_[edge.from]);
    return reason;
  }

  // Of an extra: it stands for nothing by itself, so what raised it is what asks for it.
  std::string who_asks_for(const Propagated& extra) const {
    if (!extra.by) return "";
    return in_.graph.edges[*extra.by].soft ? ", which may have been asked for"
                                           : ", which something that stays asks for";
  }

  bool is_held_by_root(std::uint32_t node) const {
    return std::ranges::any_of(roots_of_[node], [&](const Root* root) { return root->least <= alone_[node].verdict; });
  }

  std::vector<Reason> reasons_of(std::uint32_t node, const Propagated& propagated) const {
    std::vector<Reason> reasons;
    std::size_t left_out = 0;
    const auto add = [&](Reason reason) {
      // Requirements and paths come from the image and may hold anything, of any length.
      reason.text = visible(reason.text, kMaxReasonText);
      if (!names_distribution(reason)) reason.by = visible(reason.by, kMaxReasonText);
      const auto same = [&](const Reason& other) {
        return other.kind == reason.kind && other.by == reason.by && other.text == reason.text;
      };
      if (std::ranges::any_of(reasons, same)) return;
      if (reasons.size() >= kMaxReasons) {
        ++left_out;
        return;
      }
      reasons.push_back(std::move(reason));
    };
    const bool used = evidence_[node].used() && alone_[node].verdict == propagated.verdict;
    // Use says more than a rule, and a rule more than what merely follows.
    if (propagated.by) {
      add(reason_of(in_.graph.edges[*propagated.by]));
    } else if (used || !is_held_by_root(node)) {
      add(alone_[node].reason);
    }
    for (const auto* root : roots_of_[node]) add(root->reason);
    if (propagated.verdict >= Verdict::kCold) add({.kind = "free", .by = "", .text = "nothing that is kept needs it"});
    if (const auto promoted = promoted_.find(node); promoted != promoted_.end()) add(promoted->second);
    add(alone_[node].reason);
    const auto by_cold = propagated.verdict >= Verdict::kCold;
    for (const auto number : holders_[node]) {
      auto reason = reason_of(in_.graph.edges[number]);
      if (by_cold && in_.graph.edges[number].from < in_.nodes.count())
        reason.text += fmt::format(" ({} itself)", verdict_name(propagated.verdict));
      add(std::move(reason));
    }
    if (left_out > 0)
      reasons.push_back(
          {.kind = "more", .by = "", .text = fmt::format("and {} more", count_text(left_out, "reason", "reasons"))});
    return reasons;
  }

  PlannedDistribution planned(std::uint32_t i) const {
    const auto& node = in_.nodes.all()[i];
    PlannedDistribution one;
    one.name = node.name;
    one.version = report::cut(node.version, kMaxVersion);
    one.source = node.source;
    one.verdict = propagated_[i].verdict;
    one.reasons = reasons_of(i, propagated_[i]);
    std::set<std::string> imports;
    for (const auto member : node.members) {
      const auto& distribution = in_.nodes.inventory().distributions[member];
      one.bytes += distribution.bytes;
      one.compressed_bytes += distribution.compressed_bytes;
      imports.insert(distribution.imports.begin(), distribution.imports.end());
    }
    one.imports.assign(imports.begin(), imports.end());
    one.sessions = evidence_[i].uses;
    one.users = evidence_[i].users;
    one.bound = evidence_[i].bound;
    one.unused_since = unused_[i].since;
    one.unused_days = unused_[i].days;
    return one;
  }

  void problem(std::string text) {
    made_.problems.push_back(text);
    made_.plan.unsure.push_back(std::move(text));
  }

  std::string names_with(std::string_view kind) const {
    std::vector<std::string> names;
    std::size_t count = 0;
    for (const auto& one : made_.plan.verdicts) {
      if (one.verdict == Verdict::kHot && one.reasons.front().kind != kind) continue;
      if (std::ranges::none_of(one.reasons, [&](const Reason& reason) { return reason.kind == kind; })) continue;
      if (count++ < kNamedUnsure) names.push_back(visible(one.name, 60));
    }
    std::string text;
    for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
    if (count > names.size()) text += fmt::format(" and {} more", count - names.size());
    return text;
  }

  void say_what_is_unsure() {
    auto& unsure = made_.plan.unsure;
    for (const auto& text : in_.problems) problem(text);
    if (by_notebooks() ? in_.snapshot.notebooks_distinct == 0 : heard_ == 0) {
      problem(
          by_notebooks() ? "No notebook was scanned: there is no data, so nothing goes cold"
          : in_.snapshot.notebooks_distinct == 0
              ? std::string("No session was heard in the window: there is no data, so nothing goes cold")
              : fmt::format("No session was heard in the window: nothing goes cold. {} were scanned: --basis notebooks "
                            "counts these instead",
                            count_text(in_.snapshot.notebooks_distinct, "notebook", "notebooks")));
    } else if (!by_notebooks()) {
      const auto image = images_.find(in_.image);
      if (image == images_.end() || image->second->heard == 0)
        unsure.emplace_back(
            "No session was heard on this very image: what is said comes from other images that have the same "
            "distributions");
    }
    if (!evidence_.empty() && std::ranges::none_of(evidence_, &Evidence::is_known))
      problem(
          "The usage database knows none of the image's distributions, so nothing goes cold: `varve usage collect "
          "--image` tells it");
    for (const auto& problem_text : in_.nodes.inventory().problems)
      unsure.push_back("A record of the image could not be read: " + visible(problem_text));
    const auto sentence = [&](std::string_view kind, std::string_view text) {
      if (const auto names = names_with(kind); !names.empty()) unsure.push_back(fmt::format("{}: {}", text, names));
    };
    sentence("new", "On no image of which anything is known, so kept");
    sentence("no-data", "Their use could not have been seen, so they go no further than watch");
    sentence("unknown-group",
             "They have entry points in groups of which no loader is known, so they go no further than watch");
    sentence("unsure", "Too few sessions were heard to let them go cold");
    if (by_notebooks())
      unsure.emplace_back(
          "Notebooks say what their code imports, runs and installs by name; plugins and data that sessions use "
          "besides were not seen");
    unsure.insert(unsure.end(), in_.unsure.begin(), in_.unsure.end());
  }

  const PlanInput& in_;
  const Thresholds& thresholds_;
  std::unordered_map<Digest, const usage::ImageFacts*> images_;
  std::unordered_map<std::string, const usage::DistributionUse*> uses_;
  bool files_are_seen_ = false;
  std::uint64_t heard_ = 0, days_ = 0;
  std::vector<Evidence> evidence_;  // by node, as all below
  std::vector<Judged> alone_;
  std::vector<Verdict> own_;
  std::vector<std::vector<const Root*>> roots_of_;
  std::map<std::uint32_t, Reason> promoted_;
  std::vector<Unused> unused_;
  std::vector<Propagated> propagated_;
  std::vector<std::vector<std::size_t>> holders_;  // edges
  MadePlan made_;
};

}  // namespace

MadePlan make_plan(const PlanInput& input) { return PlanMaker(input).make(); }

}  // namespace varve::prune
