#include "analyzer/report/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "analyzer/report/text.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"

namespace varve::report {
namespace {

std::string days_text(usage::DayRange window) {
  if (window.last < window.first || window.last == 0) return "no days";
  const auto days = std::uint64_t(std::int64_t(window.last) - window.first + 1);
  return fmt::format("{} to {} ({})", day_text(window.first), day_text(window.last), count_text(days, "day", "days"));
}

std::string first_names(const std::vector<std::string>& names, std::size_t limit) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), limit); ++i) text += (i == 0 ? "" : ", ") + visible(names[i], 60);
  if (names.size() > limit) text += fmt::format(" and {} more", names.size() - limit);
  return text;
}

std::string weight_text(const UnusedSum& sum) {
  auto text = human_bytes(sum.bytes);
  if (sum.compressed_bytes > 0) text += fmt::format(" installed, {} compressed", human_bytes(sum.compressed_bytes));
  return text;
}

}  // namespace

std::string scope_text(const Report& report) {
  const auto& images = report.snapshot.images;
  std::string which = "no image known";
  if (report.current) {
    which = image_name(images[*report.current]);
    if (images.size() > 1) which += fmt::format(" and {}", count_text(images.size() - 1, "more image", "more images"));
  } else if (images.size() == 1) {
    which = image_name(images[0]);
  } else if (!images.empty()) {
    which = count_text(images.size(), "image", "images");
  }
  const auto& snapshot = report.snapshot;
  // Where days are gone the window is widened, and much is not known of that part.
  const auto by_month = snapshot.by_day_from > snapshot.window.first
                            ? fmt::format(", whole months before {}", day_text(snapshot.by_day_from))
                            : std::string();
  return fmt::format("{}, {}{}", which, days_text(snapshot.window), by_month);
}

std::string coverage_text(const Report& report) {
  if (report.launched == 0) return "No session was launched or heard: there is no data";
  const auto surplus = report.surplus == 0 ? std::string()
                                           : fmt::format("; {} more, of users with many a day, count only by their use",
                                                         number_text(report.surplus));
  return fmt::format("We have heard of {} of sessions: {} of {} launched{}",
                     percent_text(double(report.heard) / double(report.launched)), number_text(report.heard),
                     number_text(report.launched), surplus);
}

std::string coverage_text(const usage::ImageFacts& image) {
  const auto launched = std::max(image.launched, image.heard);
  if (launched == 0) return fmt::format("no session of {}: no data", image_name(image));
  return fmt::format("we have heard of {} of sessions of {}", percent_text(double(image.heard) / double(launched)),
                     image_name(image));
}

std::string unseen_text(const Report& report) {
  return report.packages <= report.known
             ? ""
             : fmt::format(" ({} more could not be seen)", number_text(report.packages - report.known));
}

std::string headline(const Report& report) {
  if (!report.current) return "No image's packages are known yet, so nothing can be said of what nobody uses.";
  const auto name = image_name(report.snapshot.images[*report.current]);
  if (report.known == 0)
    return fmt::format("No data on {}: no session was heard on an image that has any of its distributions.", name);
  if (report.unused_all.distributions == 0)
    return fmt::format("Each of the {} distributions of {} was used{}.", number_text(report.known), name,
                       unseen_text(report));
  auto text = fmt::format("{} of the {} distributions of {} {} used in no session{}.",
                          number_text(report.unused_all.distributions), number_text(report.known), name,
                          report.unused_all.distributions == 1 ? "was" : "were", unseen_text(report));
  if (report.free.distributions == 0)
    return text +
           " None could go: each is needed by something that is used, named by a notebook, CUDA, or of the operating "
           "system.";
  text += fmt::format(
      " {} could go, as nothing that stays needs {}: {}.",
      report.free.distributions == report.unused_all.distributions ? "They" : number_text(report.free.distributions),
      report.free.distributions == 1 ? "it" : "them", weight_text(report.free));
  return text;
}

std::vector<std::string> summary_sentences(const Report& report) {
  std::vector<std::string> lines{scope_text(report)};
  auto coverage = coverage_text(report);
  if (report.users.at_most > 0) coverage += ", " + counted_users_text(report.users);
  lines.push_back(coverage + ".");
  lines.push_back(headline(report));
  return lines;
}

std::vector<std::string> caution_sentences(const Report& report) {
  std::vector<std::string> lines;
  std::vector<std::string> unknown;
  for (const auto& image : report.snapshot.images) {
    if (image.digest == Digest()) {
      lines.push_back(fmt::format("{} did not say on which image they ran: they count for no distribution's share.",
                                  count_text(image.heard, "session", "sessions")));
    } else if (!image.has_inventory) {
      unknown.push_back(image_name(image));
    }
  }
  if (!unknown.empty())
    lines.push_back(fmt::format(
        "Packages not known of {}: nothing can be said of what it has and nobody uses (varve usage collect --image "
        "reads them).",
        first_names(unknown, 4)));
  const auto no_data =
      std::count_if(report.rows.begin(), report.rows.end(), [](const Row& row) { return row.no_data; });
  if (no_data > 0)
    lines.push_back(fmt::format("No data on {}: nobody could have been seen using {}, so nothing is said of {}.",
                                count_text(std::uint64_t(no_data), "distribution", "distributions"),
                                no_data == 1 ? "it" : "them", no_data == 1 ? "its use" : "their use"));
  if (report.hidden_names > 0)
    lines.push_back(fmt::format("Not named here: {} that no image has, in fewer than {} sessions.",
                                count_text(report.hidden_names, "distribution", "distributions"),
                                report.options.min_sessions));
  if (report.snapshot.hidden_failed_names > 0)
    lines.push_back(fmt::format("Not named here: {} below the privacy threshold.",
                                count_text(report.snapshot.hidden_failed_names, "failed import", "failed imports")));
  if (report.snapshot.quarantined > 0)
    lines.push_back(fmt::format("{} of spools could not be read and {} set aside.",
                                count_text(report.snapshot.quarantined, "record", "records"),
                                report.snapshot.quarantined == 1 ? "was" : "were"));
  return lines;
}

std::vector<std::string> gpu_sentences(const Report& report) {
  std::vector<std::string> lines;
  const auto& gpu = report.gpu;
  if (gpu.sessions > 0) {
    const auto never = gpu.sessions - std::min(gpu.sessions, gpu.used_sessions);
    lines.push_back(fmt::format("{} of {} with a GPU never touched it, for {}.", number_text(never),
                                count_text(gpu.sessions, "session", "sessions"), hours_text(gpu.unused_seconds)));
    if (gpu.incapable_sessions > 0)
      lines.push_back(fmt::format("{} with a GPU imported nothing that can use one, for {}.",
                                  count_text(gpu.incapable_sessions, "session", "sessions"),
                                  hours_text(gpu.incapable_seconds)));
    if (gpu.idle_seconds > 0)
      lines.push_back(fmt::format("Sessions held a GPU for {} in which no cell had run for over {} minutes.",
                                  hours_text(gpu.idle_seconds), usage::kGpuIdleThresholdSeconds / 60));
  }
  return lines;
}

std::string users_text(usage::UserCount users) {
  if (users.at_least == users.at_most || users.at_most < users.at_least) return number_text(users.at_least);
  return fmt::format("{}–{}", number_text(users.at_least), number_text(users.at_most));
}

std::string counted_users_text(usage::UserCount users) {
  return users_text(users) + (users.at_least == 1 && users.at_most <= 1 ? " user" : " users");
}

std::string holder_text(const Row& row) {
  std::string text;
  if (row.cuda)
    text = "CUDA (always stays)";
  else if (row.system)
    text = "the operating system";
  if (!row.needed_by.empty()) {
    text += (text.empty() ? "" : ", ") + first_names(row.needed_by, 3);
    if (row.needed_by_count > row.needed_by.size())
      text += fmt::format(" and {} more", row.needed_by_count - row.needed_by.size());
  }
  if (row.use->notebooks > 0)
    text += (text.empty() ? "" : ", ") + count_text(row.use->notebooks, "notebook", "notebooks");
  return text;
}

std::string reinstall_text(const usage::Reinstall& reinstall) {
  const auto from = reinstall.from.empty() ? std::string("absent") : visible(reinstall.from, 40);
  const auto to = reinstall.to.empty() ? std::string("removed") : visible(reinstall.to, 40);
  return fmt::format("{} → {} ({})", from, to, visible(reinstall.why, 20));
}

std::string place_text(std::uint32_t cell, std::uint32_t line) {
  return cell == 0 ? fmt::format("line {}", line) : fmt::format("cell {}, line {}", cell, line);
}

void write_wrapped(std::ostream& out, std::string_view indent, std::string_view text) {
  constexpr std::size_t kColumns = 100;
  std::string line(indent);
  bool fresh = true;
  while (!text.empty()) {
    auto space = std::min(text.find(' '), text.size());
    while (space + 1 < text.size() && text[space + 1] == '%')
      space = std::min(text.find(' ', space + 1), text.size());  // "95 %" stays together
    const auto word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (!fresh && characters(line) + 1 + characters(word) > kColumns) {
      out << line << '\n';
      line = std::string(indent);
      fresh = true;
    }
    if (!fresh) line += ' ';
    line += fresh ? cut(word, kColumns - characters(indent)) : std::string(word);
    fresh = false;
  }
  if (!fresh) out << line << '\n';
}

}  // namespace varve::report
