#include <algorithm>
#include <numeric>

#include "analyzer/report/html.h"
#include "analyzer/report/page.h"
#include "analyzer/report/text.h"
#include "analyzer/report/words.h"
#include "core/base/text/calendar.h"
#include "core/base/text/units.h"

namespace varve::report {
namespace {

constexpr std::size_t kSparkBins = 53;
constexpr std::size_t kTopRows = 20;
constexpr std::size_t kTopSystemRows = 10;
constexpr std::size_t kMovers = 8;

// A polyline in steps relative to each other, which is short: a page of 1,000 rows carries 1,000 of them.
std::string line_path(const std::vector<std::uint64_t>& counts, double height) {
  const auto most = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  if (most == 0 || counts.size() < 2) return "";
  const auto y_of = [&](std::uint64_t count) {
    return int(height - double(count) / double(most) * (height - 1) + 0.5);
  };
  int y = y_of(counts[0]);
  auto path = fmt::format("M0 {}l", y);
  for (std::size_t i = 1; i < counts.size(); ++i) {
    const int next = y_of(counts[i]);
    put(path, "{}1{}{}", i == 1 ? "" : " ", next < y ? "" : " ", next - y);
    y = next;
  }
  return path;
}

std::string spark(const usage::DistributionUse& use, usage::DayRange window) {
  const auto counts = binned(use.days, window, kSparkBins);
  const auto path = line_path(counts, 17);
  if (path.empty()) return "";
  return fmt::format(
      "<svg class=\"spark\" viewBox=\"0 0 {} 18\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><path "
      "d=\"{}\"/></svg>",
      counts.size() - 1, path);
}

std::string html_trend_cell(const Row& row) {
  const auto word = trend_name(row.trend_kind);
  const auto number = trend_text(row.trend);
  if (row.trend_kind == Trend::kSteady || word.empty()) return html(number);
  const std::string_view arrow =
      row.trend_kind == Trend::kRising || row.trend_kind == Trend::kNew ? "&uarr;" : "&darr;";
  const bool said = row.trend_kind == Trend::kNew || row.trend_kind == Trend::kGone;
  return fmt::format("{} {}", arrow, said ? html(word) : html(number));
}

// Heard sessions over the window: the fleet that everything else is measured against.
std::string heard_chart(const Report& report) {
  const auto& window = report.snapshot.window;
  constexpr std::size_t kBins = 122;
  const auto counts = binned(report.snapshot.heard_days, window, kBins);
  if (counts.size() < 2) return "";
  const auto most = *std::max_element(counts.begin(), counts.end());
  const auto length = std::int64_t(window.last) - window.first + 1;
  const auto days = length / std::int64_t(counts.size());
  if (most == 0) return "";
  std::string points;
  for (std::size_t i = 0; i < counts.size(); ++i)
    put(points, "{}{},{:.1f}", i == 0 ? "" : " ", i, 100 - 92 * double(counts[i]) / double(most));
  const auto end = counts.size() - 1;
  std::string out;
  put(out, "<figure class=\"over\"><figcaption>Sessions heard, {}; most: {}</figcaption><div class=\"plot\">",
      days == 1   ? "day by day"
      : days == 7 ? "week by week"
                  : fmt::format("in steps of {} days", days),
      number_text(most));
  put(out,
      "<svg viewBox=\"0 0 {0} 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Sessions heard over time, "
      "from {1} to {2}\"><path class=\"grid\" "
      "d=\"M0 8H{0}M0 54H{0}\"/><polygon class=\"area\" points=\"0,100 {3} {0},100\"/><polyline class=\"line\" "
      "points=\"{3}\"/></svg>",
      end, day_text(window.first), day_text(window.last), points);
  put(out, "<span class=\"y y0\">{}</span><span class=\"y y1\">{}</span></div>", number_text(most),
      number_text(most / 2));
  put(out, "<div class=\"x\"><span>{}</span><span>{}</span><span>{}</span></div></figure>\n", day_text(window.first),
      day_text(std::int32_t(window.first + length / 2)), day_text(window.last));
  return out;
}

constexpr std::string_view kBarKey =
    "<ul class=\"key\"><li><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\"><rect class=\"direct\" width=\"14\" "
    "height=\"14\"/></svg>directly</li><li><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\"><rect class=\"through\" "
    "width=\"14\" height=\"14\"/></svg>in other ways: through other libraries, named in cells, files "
    "only</li></ul>\n";

// "" if none was used. What the operating system brings stands apart: it is in nearly every session.
std::string top_table(const Report& report, bool of_system, std::string_view caption, std::size_t limit) {
  std::string out;
  put(out,
      "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><table class=\"bars\"><caption>{0}: share "
      "of the sessions that could have used them</caption>\n<thead><tr><th scope=\"col\">Name</th>",
      caption);
  for (const std::string_view heading : {"r\">Sessions", "r l\">Directly", "r l\">Through others",
                                         "r m\">Named in cells", "r m\">Files only", "r\">Share"})
    put(out, "<th scope=\"col\" class=\"{}</th>", heading);
  out += "<th scope=\"col\"><span class=\"sr\">Share, drawn</span></th></tr></thead>\n<tbody>\n";
  std::size_t shown = 0;
  for (const auto& row : report.rows) {
    if (row.sessions == 0 || shown == limit) break;
    if (!row.share || row.system != of_system) continue;
    ++shown;
    const auto& use = *row.use;
    const double direct = double(use.direct) / double(std::max<std::uint64_t>(1, row.sessions));
    put(out,
        "<tr><th scope=\"row\">{}</th><td class=\"r\">{}</td><td class=\"r l\">{}</td><td class=\"r l\">{}</td><td "
        "class=\"r m\">{}</td><td class=\"r m\">{}</td><td class=\"r\">{}</td><td>{}</td></tr>\n",
        html(use.name), number_text(row.sessions), number_text(use.direct), number_text(use.transitive_only),
        number_text(named_only(use)), number_text(use.files_only), html(percent_text(*row.share)),
        bar(*row.share * direct, "direct", *row.share * (1 - direct), "through"));
  }
  return shown == 0 ? "" : out + "</tbody></table></div>\n";
}

std::string movers_table(const Report& report, bool rising) {
  std::vector<const Row*> movers;
  for (const auto& row : report.rows) {
    const bool up = row.trend_kind == Trend::kRising || row.trend_kind == Trend::kNew,
               down = row.trend_kind == Trend::kFalling || row.trend_kind == Trend::kGone;
    if (rising ? up : down) movers.push_back(&row);
  }
  if (movers.empty()) return "";
  // Those that many feel first: sessions gained or lost against an unchanged rate.
  const auto weight = [](const Row* row) {
    return double(row->sessions) * (row->trend ? std::abs(*row->trend - 1) / (*row->trend + 1) : 1);
  };
  std::stable_sort(movers.begin(), movers.end(), [&](const Row* a, const Row* b) { return weight(a) > weight(b); });
  std::string out;
  put(out,
      "<div><h3>{}</h3><table><caption class=\"sr\">{}</caption><thead><tr><th scope=\"col\">Name</th><th "
      "scope=\"col\" class=\"l\">Use over "
      "time</th><th scope=\"col\" class=\"r\">Sessions</th><th scope=\"col\" "
      "class=\"r\">Trend</th></tr></thead>\n<tbody>\n",
      rising ? "Rising" : "Falling", rising ? "Distributions whose use rises" : "Distributions whose use falls");
  for (std::size_t i = 0; i < std::min(movers.size(), kMovers); ++i) {
    put(out,
        "<tr><th scope=\"row\">{}</th><td class=\"l\">{}</td><td class=\"r\">{}</td><td class=\"r\">{}</td></tr>\n",
        html(movers[i]->use->name), spark(*movers[i]->use, report.snapshot.window), number_text(movers[i]->sessions),
        html_trend_cell(*movers[i]));
  }
  return out + "</tbody></table></div>\n";
}

std::string counted(const std::map<std::string, std::uint64_t>& counts, std::size_t limit) {
  std::vector<std::pair<std::string, std::uint64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t i = 0; i < std::min(sorted.size(), limit); ++i)
    put(text, "{}{} ({})", i == 0 ? "" : ", ", html(sorted[i].first, 60), number_text(sorted[i].second));
  if (sorted.size() > limit) put(text, " and {} more", sorted.size() - limit);
  return text;
}

std::string named(const std::vector<std::string>& names, std::size_t limit) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), limit); ++i)
    put(text, "{}{}", i == 0 ? "" : ", ", html(names[i], 60));
  if (names.size() > limit) put(text, " and {} more", names.size() - limit);
  return text;
}

// What does not fit into columns, behind the name.
std::string details(const Report& report, const Row& row) {
  const auto& use = *row.use;
  std::string out;
  if (row.package == nullptr) {
    out += "<p>No known image has it: sessions brought their own.</p>";
  } else {
    const auto imports = named(row.package->imports, 3);
    put(out, "<p>Version {} ({}), in {} of {} images{}{}.</p>", html(row.package->version, 40),
        html(row.package->source, 20), use.packages.size(), report.snapshot.images.size(),
        imports.empty() ? "" : ", imports ", imports);
  }
  if (row.no_data) put(out, "<p class=\"d\">No data: {}.</p>", html(row.no_data_reason, 500));
  if (!row.no_data && row.bound && row.sessions > 0)
    put(out,
        "<p>{} of {} sessions: {} directly, {} only through others, {} only named in cells, {} only its files; users "
        "{}; "
        "last <span class=\"w\">{}</span>.</p>",
        number_text(row.sessions), number_text(row.exposed_sessions), number_text(use.direct),
        number_text(use.transitive_only), number_text(named_only(use)), number_text(use.files_only),
        page_users(report, use.users), last_seen_text(use.last_used));
  if (row.unused)
    put(out, "<p>0 of {} sessions: at most {} of sessions, at 95&nbsp;% confidence.</p>",
        number_text(row.exposed_sessions), html(percent_text(*row.bound)));
  if (!use.shared_with.empty())
    put(out, "<p>Has modules in common with {}: what was seen may be theirs.</p>", named(use.shared_with, 3));
  if (!use.importers.empty()) put(out, "<p>Imported by {}.</p>", counted(use.importers, 3));
  for (const auto& disagreement : row.disagreements) put(out, "<p class=\"d\">{}.</p>", html(disagreement, 500));
  return out;
}

// What the search box filters by.
std::string flags(const Row& row) {
  std::string text;
  if (row.unused) text += " unused";
  if (row.could_go) text += " free";
  text += row.system ? " system" : " python";
  if (row.no_data) text += " nodata";
  if (!row.disagreements.empty()) text += " differ";
  if (row.package == nullptr) text += " outside";
  if (row.package != nullptr && row.package->gpu) text += " gpu";
  return text.empty() ? "" : text.substr(1);
}

template <typename Number>
std::string key(const std::optional<Number>& number) {
  return number ? fmt::format("{:.5g}", double(*number)) : "";
}

// Columns of 30, 90 and 365 days are shown where they say something else than the whole window.
std::vector<std::pair<int, std::optional<std::uint64_t> Row::*>> window_columns(const Report& report) {
  const auto length = std::int64_t(report.snapshot.window.last) - report.snapshot.window.first + 1;
  std::vector<std::pair<int, std::optional<std::uint64_t> Row::*>> columns;
  if (length > 30) columns.emplace_back(30, &Row::last_30);
  if (length > 90) columns.emplace_back(90, &Row::last_90);
  if (length > 365) columns.emplace_back(365, &Row::last_365);
  return columns;
}

void put_row(std::string& out, const Report& report, const Row& row, std::size_t place) {
  const auto& use = *row.use;
  const auto columns = window_columns(report);
  // What nobody could see is neither sorted nor shown as zero.
  const auto count = [&row](std::uint64_t number) { return row.no_data ? std::string() : std::to_string(number); };
  const auto shown = [&row](std::uint64_t number) { return row.no_data ? std::string() : number_text(number); };
  put(out, "<tr{} data-f=\"{}\" data-v=\"{},{},{},{},{},{},{},{},{},{},", row.unused ? " class=\"u\"" : "", flags(row),
      place, count(row.sessions), key(row.share), key(row.bound), count(use.direct), count(use.transitive_only),
      count(named_only(use)), count(use.files_only), count(use.users.at_least), key(row.trend));
  for (const auto& [days, member] : columns) put(out, "{},", row.*member ? std::to_string(*(row.*member)) : "");
  put(out, "{},{}\">", use.last_used == 0 ? "" : std::to_string(use.last_used), row.bytes);
  put(out, "<th scope=\"row\"><details><summary>{}</summary>{}</details></th>", html(use.name, 80),
      details(report, row));
  put(out,
      "<td class=\"m\">{}</td><td class=\"r\">{}</td><td class=\"r l\">{}</td><td class=\"r q x\">{}</td><td class=\"r "
      "m\">{}</td><td class=\"r m\">{}</td><td class=\"r m\">{}</td><td class=\"r m\">{}</td><td class=\"r "
      "m\">{}</td><td class=\"r l\">{}</td>",
      row.no_data  ? ""
      : row.unused ? "<span class=\"none\">never used</span>"
                   : spark(use, report.snapshot.window),
      row.no_data ? "no data" : number_text(row.sessions), row.share ? html(percent_text(*row.share)) : "",
      row.bound ? html(percent_text(*row.bound)) : "", shown(use.direct), shown(use.transitive_only),
      shown(named_only(use)), shown(use.files_only), row.no_data ? "" : page_users(report, use.users),
      html_trend_cell(row));
  for (const auto& [days, member] : columns)
    put(out, "<td class=\"r x\">{}</td>", row.*member ? number_text(*(row.*member)) : "");
  put(out, "<td class=\"r l\">{}</td><td class=\"r\">{}</td></tr>\n",
      use.last_used == 0 ? (row.no_data ? "" : "never") : day_text(use.last_used),
      row.package == nullptr ? "" : human_bytes(row.bytes));
}

}  // namespace

std::string use_section(const Report& report) {
  auto out = heard_chart(report);
  const auto top = top_table(report, false, "The most used distributions", kTopRows),
             system = top_table(report, true, "The most used packages of the operating system", kTopSystemRows);
  out += top.empty() && system.empty() ? "<p>No session was seen using anything yet.</p>" : std::string(kBarKey);
  out += top + system;
  const auto rising = movers_table(report, true), falling = movers_table(report, false);
  if (!rising.empty() || !falling.empty()) put(out, "<div class=\"pair\">{}{}</div>\n", rising, falling);
  return out;
}

std::string all_section(const Report& report) {
  if (report.rows.empty())
    return "<p>Nothing is known yet: <code>varve usage collect</code> takes in images and "
           "sessions.</p>";
  std::string out =
      "<div class=\"tools\" id=\"tools\" hidden><label for=\"search\">Search <input id=\"search\" type=\"search\" "
      "autocomplete=\"off\" spellcheck=\"false\"></label>"
      "<label for=\"kind\">Show <select id=\"kind\"><option value=\"\">everything</option><option "
      "value=\"unused\">never used</option><option value=\"free\">could go</option><option value=\"python\">without "
      "the "
      "operating system</option><option value=\"system\">of the operating system</option><option value=\"nodata\">no "
      "data</option><option value=\"differ\">evidence disagrees</option><option value=\"gpu\">can use a "
      "GPU</option><option value=\"outside\">in no "
      "image</option></select></label><output id=\"status\" role=\"status\" aria-live=\"polite\"></output></div>\n<div "
      "class=\"wide\" role=\"region\" tabindex=\"0\" "
      "aria-label=\"All distributions\"><table class=\"all\"><caption>Every distribution, most sessions first. The "
      "name opens what else is known of it. Sessions = directly + through others + named in cells + files only. "
      "&ldquo;At most&rdquo;: the share of sessions that may use it, at 95&nbsp;% confidence.</caption>\n"
      "<thead><tr><th scope=\"col\" data-c=\"0\">Name</th><th scope=\"col\" class=\"m\">Use over time</th><th "
      "scope=\"col\" class=\"r\" data-c=\"1\" "
      "aria-sort=\"descending\">Sessions</th><th scope=\"col\" class=\"r l\" data-c=\"2\">Share</th><th scope=\"col\" "
      "class=\"r x\" data-c=\"3\">At most</th><th "
      "scope=\"col\" class=\"r m\" data-c=\"4\">Directly</th><th scope=\"col\" class=\"r m\" data-c=\"5\">Through "
      "others</th><th "
      "scope=\"col\" class=\"r m\" data-c=\"6\">Named in cells</th><th scope=\"col\" class=\"r m\" "
      "data-c=\"7\">Files only</th><th scope=\"col\" class=\"r m\" data-c=\"8\">Users</th><th scope=\"col\" "
      "class=\"r l\" data-c=\"9\">Trend</th>";
  int column = 10;
  for (const auto& [days, member] : window_columns(report))
    put(out, "<th scope=\"col\" class=\"r x\" data-c=\"{}\">{} days</th>", column++, days);
  put(out,
      "<th scope=\"col\" class=\"r l\" data-c=\"{}\">Last used</th><th scope=\"col\" class=\"r\" "
      "data-c=\"{}\">Size</th></tr></thead>\n<tbody>\n",
      column, column + 1);
  std::vector<std::size_t> by_name(report.rows.size()), place(report.rows.size());
  std::iota(by_name.begin(), by_name.end(), 0);
  std::stable_sort(by_name.begin(), by_name.end(),
                   [&](std::size_t a, std::size_t b) { return report.rows[a].use->name < report.rows[b].use->name; });
  for (std::size_t i = 0; i < by_name.size(); ++i) place[by_name[i]] = i;
  for (std::size_t i = 0; i < report.rows.size(); ++i) put_row(out, report, report.rows[i], place[i]);
  return out + "</tbody></table></div>\n";
}

}  // namespace varve::report
