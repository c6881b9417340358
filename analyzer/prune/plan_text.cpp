#include "analyzer/prune/plan_text.h"

#include <algorithm>
#include <array>
#include <ostream>

#include <fmt/format.h>

#include "analyzer/report/text.h"
#include "analyzer/report/words.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"

namespace varve::prune {
namespace {

using report::count_text;
using report::number_text;

constexpr std::size_t kNamedNotebooks = 10;

void paragraph(std::ostream& out, std::string_view text, std::string_view indent = "") {
  report::write_wrapped(out, indent, text);
}

std::string shown_list(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + visible(name, 60);
  return text;
}

void write_head(const Plan& plan, std::ostream& out) {
  const auto basis = plan.parameters.find("basis");
  const bool notebooks = basis != plan.parameters.end() && basis->second == "notebooks";
  paragraph(out, fmt::format("{}: {} to {}, {} {}.", visible(plan.reference, 80), day_text(plan.window.first),
                             day_text(plan.window.last),
                             notebooks ? count_text(plan.sessions, "scanned notebook", "scanned notebooks")
                                       : count_text(plan.sessions, "session", "sessions"),
                             notebooks ? "looked at" : "heard"));
}

void write_totals(const Plan& plan, std::ostream& out) {
  struct Sum {
    std::uint64_t count = 0, bytes = 0, compressed_bytes = 0;
  };
  std::array<Sum, 4> sums;
  Sum all;
  for (const auto& one : plan.verdicts) {
    for (auto* sum : {&sums.at(std::size_t(one.verdict)), &all}) {
      ++sum->count;
      sum->bytes += one.bytes;
      sum->compressed_bytes += one.compressed_bytes;
    }
  }
  out << fmt::format("\n{:<10}{:>14}{:>14}{:>14}{:>10}\n", "VERDICT", "DISTRIBUTIONS", "INSTALLED", "COMPRESSED",
                     "SHARE");
  for (const auto verdict : {Verdict::kHot, Verdict::kWatch, Verdict::kCold, Verdict::kArchived}) {
    const auto& sum = sums.at(std::size_t(verdict));
    const auto share = all.compressed_bytes == 0 ? 0.0 : double(sum.compressed_bytes) / double(all.compressed_bytes);
    out << fmt::format("{:<10}{:>14}{:>14}{:>14}{:>10}\n", verdict_name(verdict), number_text(sum.count),
                       human_bytes(sum.bytes), human_bytes(sum.compressed_bytes),
                       sum.count == 0 ? "" : report::percent_text(share));
  }
}

void write_rows(const Plan& plan, std::ostream& out, const PlanTextOptions& options) {
  std::vector<const PlannedDistribution*> rows;
  for (const auto& one : plan.verdicts) {
    if (options.all || one.verdict >= Verdict::kCold) rows.push_back(&one);
  }
  if (rows.empty()) {
    out << "\nNothing goes cold.\n";
    return;
  }
  const auto hotter = [](const PlannedDistribution* one, const PlannedDistribution* other) {
    return one->verdict != other->verdict ? one->verdict > other->verdict
                                          : one->compressed_bytes > other->compressed_bytes;
  };
  std::ranges::stable_sort(rows, hotter);
  const auto shown = options.limit == 0 ? rows.size() : std::min(rows.size(), options.limit);
  out << '\n';
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& one = *rows[i];
    out << fmt::format(
        "{:<9}{:<38}{:>11} compressed{}\n", verdict_name(one.verdict), visible(one.name + " " + one.version, 37),
        human_bytes(one.compressed_bytes),
        one.unique_compressed_bytes > 0 ? fmt::format(", {} only here", human_bytes(one.unique_compressed_bytes)) : "");
    auto why = one.reasons.front().by.empty() ? std::string() : visible(one.reasons.front().by, 100) + ": ";
    why += visible(one.reasons.front().text, 300);
    if (one.reasons.size() > 1 && one.verdict >= Verdict::kCold)
      why += "; " +
             visible(one.reasons[1].by.empty() ? one.reasons[1].text : one.reasons[1].by + ": " + one.reasons[1].text,
                     200);
    paragraph(out, why, "         ");
  }
  if (shown < rows.size()) out << fmt::format("and {} more (--all, --limit 0)\n", number_text(rows.size() - shown));
}

void write_consequences(const Plan& plan, std::ostream& out) {
  const auto& forecast = plan.forecast;
  out << '\n';
  std::uint64_t archived_bytes = 0;
  for (const auto& one : plan.verdicts)
    if (one.verdict == Verdict::kArchived) archived_bytes += one.compressed_bytes;
  if (plan.cold_bytes > 0)
    paragraph(
        out,
        fmt::format("Cold are {} of the image's compressed bytes{}; {} of them only what goes reaches, over all pinned "
                    "versions.",
                    human_bytes(plan.cold_bytes - std::min(plan.cold_bytes, archived_bytes)),
                    archived_bytes == 0 ? "" : fmt::format(", archived {}", human_bytes(archived_bytes)),
                    human_bytes(plan.saved_bytes)));
  if (!plan.gpu_cold.empty()) {
    std::uint64_t bytes = 0;
    for (const auto& file : plan.gpu_cold) bytes += file.cold_bytes();
    const auto gpus = plan.parameters.find("gpu-arch");
    paragraph(out, fmt::format("Code for other GPUs than {} goes cold in {}: {}; {} compressed are in spans that hold "
                               "nothing else.",
                               gpus == plan.parameters.end() ? "those named" : visible(gpus->second, 200),
                               count_text(plan.gpu_cold.size(), "file", "files"), human_bytes(bytes),
                               human_bytes(plan.gpu_cold_bytes)));
  }
  if (!forecast.basis.empty()) {
    paragraph(
        out,
        fmt::format(
            "Of {} {}, {} touched something that is cold now; of those to come {} are expected to, at most {} (95 %).",
            number_text(forecast.sessions), visible(forecast.basis, 40), number_text(forecast.touching),
            report::percent_text(forecast.expected_rate), report::percent_text(forecast.at_most)));
    if (forecast.judged > 0)
      paragraph(out, fmt::format("Halves of the evidence foretold {} of each other, and it was {}.",
                                 report::percent_text(forecast.held_out_expected),
                                 report::percent_text(forecast.held_out_seen)));
  }
  if (!plan.affected.empty()) {
    paragraph(out, fmt::format("{} import something cold{}:", count_text(plan.affected.size(), "notebook", "notebooks"),
                               plan.affected_users > 0 ? fmt::format(", {} at most would notice",
                                                                     count_text(plan.affected_users, "user", "users"))
                                                       : ""));
    for (std::size_t i = 0; i < std::min(plan.affected.size(), kNamedNotebooks); ++i)
      paragraph(out,
                fmt::format("{}: {}", visible(plan.affected[i].path, 120), shown_list(plan.affected[i].distributions)),
                "  ");
    if (plan.affected.size() > kNamedNotebooks)
      out << fmt::format("  and {} more\n", number_text(plan.affected.size() - kNamedNotebooks));
  }
  for (const auto& waiver : plan.waivers)
    paragraph(out, fmt::format("Waived: the gate {}: {} ({})", waiver.gate, visible(waiver.reason),
                               visible(waiver.owner, 60)));
  for (const auto& sentence : plan.unsure)
    paragraph(out, "Unsure: " + visible(sentence, 1000) + (sentence.ends_with('.') ? "" : "."));
}

}  // namespace

void write_plan(const Plan& plan, std::ostream& out, const PlanTextOptions& options) {
  write_head(plan, out);
  write_totals(plan, out);
  write_rows(plan, out, options);
  write_consequences(plan, out);
}

}  // namespace varve::prune
