#include <algorithm>

#include "analyzer/report/html.h"
#include "analyzer/report/page.h"
#include "analyzer/report/text.h"
#include "analyzer/report/words.h"
#include "core/base/text/units.h"

namespace varve::report {
namespace {

void put_figure(std::string& out, std::string_view what, const std::string& number, const std::string& of) {
  put(out, "<div><dt>{}</dt><dd><span class=\"n\">{}</span><span class=\"of\">{}</span></dd></div>\n", html(what),
      html(number), html(of));
}

}  // namespace

std::string page_users(const Report& report, usage::UserCount users) {
  const auto least = report.options.min_sessions;
  if (users.at_most == 0 || users.at_least >= least) return users_text(users);
  return users.at_most < least ? fmt::format("under {}", least) : fmt::format("up to {}", number_text(users.at_most));
}

std::string bar(double share, std::string_view kind, double second, std::string_view second_kind) {
  const auto first = std::clamp(share, 0.0, 1.0) * 100;
  auto text = fmt::format(
      "<svg class=\"rate\" viewBox=\"0 0 100 9\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"bg\" "
      "width=\"100\" "
      "height=\"9\"/><rect class=\"{}\" width=\"{:.4g}\" height=\"9\"/>",
      kind, first);
  if (second > 0)
    put(text, "<rect class=\"{}\" x=\"{:.4g}\" width=\"{:.4g}\" height=\"9\"/>", second_kind, first,
        std::min(second * 100, 100 - first));
  return text + "</svg>";
}

std::vector<std::uint64_t> binned(const std::vector<usage::DayCount>& days, usage::DayRange window, std::size_t bins) {
  const auto length = std::int64_t(window.last) - window.first + 1;
  if (length <= 0) return {};
  // Steps of whole days, and of whole weeks where days are too many: else weekends would draw a pattern of their own.
  auto width = std::max<std::int64_t>(1, (length + std::int64_t(bins) - 1) / std::int64_t(bins));
  if (width > 1) width = (width + 6) / 7 * 7;
  std::vector<std::uint64_t> counts(std::size_t(length / width), 0);
  const auto skipped = length % width;  // at the beginning, so that the newest days are whole
  for (const auto& day : days) {
    const auto at = std::int64_t(day.day) - window.first - skipped;
    if (at >= 0 && day.day <= window.last) counts[std::size_t(at / width)] += day.sessions;
  }
  return counts;
}

char use_step(const Row& row) {
  if (row.no_data) return 'n';
  if (row.unused) return '0';
  const double share = row.share.value_or(0);
  return share >= 0.2 ? '5' : share >= 0.05 ? '4' : share >= 0.01 ? '3' : share >= 0.001 ? '2' : '1';
}

std::string figures_section(const Report& report) {
  std::string out;
  put_figure(out, "Sessions heard", report.launched == 0 ? "no data" : number_text(report.heard),
             report.launched == 0
                 ? "nothing was launched or heard"
                 : fmt::format("{} of {} launched", percent_text(double(report.heard) / double(report.launched)),
                               number_text(report.launched)));
  if (report.users.at_most > 0)
    put_figure(out, "Users", page_users(report, report.users), "known month by month, so a range");
  if (report.current) {
    const auto name = image_name(report.snapshot.images[*report.current]);
    put_figure(out, "Never used", number_text(report.unused_all.distributions),
               fmt::format("of {} distributions of {}{}", number_text(report.known), name, unseen_text(report)));
    std::uint64_t compressed = 0;
    for (const auto& layer : report.snapshot.layers) {
      if (layer.image == report.snapshot.images[*report.current].digest) compressed += layer.compressed_bytes;
    }
    auto of = report.free.compressed_bytes > 0 ? fmt::format("{} compressed", human_bytes(report.free.compressed_bytes))
                                               : std::string("installed");
    if (compressed > 0 && report.free.compressed_bytes <= compressed)
      of += fmt::format(", {} of the image", percent_text(double(report.free.compressed_bytes) / double(compressed)));
    put_figure(out, "Could go", human_bytes(report.free.bytes), of);
  }
  if (report.gpu.sessions > 0)
    put_figure(
        out, "GPU never touched", hours_text(report.gpu.unused_seconds),
        fmt::format("in {}", count_text(report.gpu.sessions - std::min(report.gpu.sessions, report.gpu.used_sessions),
                                        "session", "sessions")));
  if (!report.snapshot.failed.empty())
    put_figure(out, "Imports that failed", number_text(report.snapshot.failed.size()), "names that sessions missed");
  return out;
}

std::string cautions_section(const Report& report) {
  const auto cautions = caution_sentences(report);
  if (cautions.empty()) return "";
  std::string out = "<ul class=\"cautions\">";
  for (const auto& caution : cautions) put(out, "<li>{}</li>", html(caution, 1000));
  return out + "</ul>";
}

std::string coverage_section(const Report& report) {
  if (report.snapshot.images.empty()) return "<p>No image and no session is known yet.</p>";
  std::string out =
      "<p>A session that sends nothing is not a session that used nothing. What this page says holds for the sessions "
      "heard.</p>\n<div class=\"wide\" "
      "role=\"region\" tabindex=\"0\" aria-label=\"Coverage\"><table class=\"bars long\"><caption>Sessions heard of "
      "those launched, newest image "
      "first</caption>\n<thead><tr><th scope=\"col\">Image</th><th scope=\"col\" class=\"l\">Python</th><th "
      "scope=\"col\" class=\"l\">Packages</th><th "
      "scope=\"col\" class=\"r l\">Launched</th><th scope=\"col\" class=\"r\">Heard</th><th scope=\"col\" "
      "class=\"r\">Share</th><th scope=\"col\"><span "
      "class=\"sr\">Share, drawn</span></th></tr></thead>\n<tbody>\n";
  for (const auto& image : report.snapshot.images) {
    const auto launched = std::max(image.launched, image.heard);
    const double share = launched == 0 ? 0 : double(image.heard) / double(launched);
    put(out,
        "<tr><th scope=\"row\">{}</th><td class=\"l\">{}</td><td class=\"l\">{}</td><td class=\"r l\">{}</td><td "
        "class=\"r\">{}</td><td class=\"r\">{}</td><td>{}</td></tr>\n",
        html(image_name(image)), html(image.python, 20),
        image.has_inventory ? "known" : "<span class=\"none\">not known</span>", number_text(launched),
        image.heard == 0 ? "<span class=\"none\">no data</span>" : number_text(image.heard),
        launched == 0 ? "" : html(percent_text(share)), launched == 0 ? "" : bar(share, "direct"));
  }
  return out + "</tbody></table></div>";
}

}  // namespace varve::report
