#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ostream>

#include "analyzer/report/report.h"
#include "analyzer/report/rows.h"
#include "analyzer/report/text.h"
#include "analyzer/report/words.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"

namespace varve::report {
namespace {

constexpr std::size_t kImagesShown = 6;
constexpr std::size_t kNamesShown = 8;
constexpr std::size_t kEvidenceShown = 20;  // of each kind; JSON has all

// The rules of the report need a snapshot; an explanation is one of few distributions.
usage::Snapshot as_snapshot(const usage::Explanation& explanation) {
  usage::Snapshot snapshot;
  snapshot.images = explanation.images;
  snapshot.distributions = explanation.use;
  bool first = true;
  for (const auto& use : explanation.use) {
    snapshot.notebooks_scanned += use.notebooks;
    for (const auto& day : use.days) {
      if (first || day.day < snapshot.window.first) snapshot.window.first = day.day;
      if (first || day.day > snapshot.window.last) snapshot.window.last = day.day;
      first = false;
    }
  }
  return snapshot;
}

std::string names_text(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i)
    text += (i == 0 ? "" : ", ") + visible(names[i], 60);
  if (names.size() > kNamesShown) text += fmt::format(" and {} more", names.size() - kNamesShown);
  return text;
}

std::string counted_names_text(const std::map<std::string, std::uint64_t>& counts) {
  std::vector<std::pair<std::string, std::uint64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> names;
  for (const auto& [name, count] : sorted)
    names.push_back(fmt::format("{} ({})", visible(name, 60), number_text(count)));
  return names_text(names);
}

class Story {
 public:
  Story(const usage::Explanation& explanation, std::ostream& out)
      : explanation_(explanation), out_(out), snapshot_(as_snapshot(explanation)), scene_(snapshot_) {}

  void tell() {
    if (explanation_.use.empty() && explanation_.failed.empty() && explanation_.evidence.empty()) return tell_nothing();
    tell_what_it_stands_for();
    for (const auto& use : snapshot_.distributions) tell(use);
    tell_failed();
    tell_evidence();
    tell_where_looked();
  }

 private:
  void say(std::string_view indent, const std::string& text) { write_wrapped(out_, indent, text); }

  std::string name_of(const std::optional<Digest>& digest) const {
    if (!digest) return "";
    const auto* image = scene_.image(*digest);
    return image != nullptr ? image_name(*image) : "sha256:" + digest->hex().substr(0, 12);
  }

  void tell_nothing() {
    say("",
        fmt::format(
            "Nothing is known of {}: no image has a distribution or module of this name, no notebook names it, and no "
            "session used it. Names that only a few sessions failed to import are not kept.",
            visible(explanation_.asked, 80)));
    tell_where_looked();
  }

  void tell_what_it_stands_for() {
    const auto asked = visible(explanation_.asked, 80);
    const auto& names = explanation_.distributions;
    if (names.empty())
      return say("", fmt::format("{}: no known image has a distribution or module of this name.", asked));
    if (names.size() == 1 && names[0] == explanation_.asked) return;
    say("", fmt::format("{} stands for {}{}.", asked,
                        names.size() == 1 ? "the distribution " : fmt::format("{} distributions: ", names.size()),
                        names_text(names)));
  }

  void tell(const usage::DistributionUse& use) {
    const auto row = make_row(scene_, use);
    const auto& shown = use.display_name.empty() ? use.name : use.display_name;
    out_ << '\n' << visible(shown, 80) << '\n';
    tell_packages(use, row);
    tell_use(use, row);
    tell_months(use);
    for (const auto& disagreement : row.disagreements) say("  ", "Note: " + disagreement + ".");
  }

  void tell_packages(const usage::DistributionUse& use, const Row& row) {
    if (use.packages.empty())
      return say("  ", "No known image has it: what was loaded were copies that sessions installed.");
    if (!row.package->imports.empty()) say("  ", "Imported as " + names_text(row.package->imports) + ".");
    if (!row.package->required.empty()) say("  ", "Needs " + names_text(row.package->required) + ".");
    auto packages = std::vector<const usage::PackageFacts*>();
    for (const auto& package : use.packages) packages.push_back(&package);
    std::stable_sort(packages.begin(), packages.end(),
                     [&](const auto* a, const auto* b) { return scene_.age(a->image) < scene_.age(b->image); });
    for (std::size_t i = 0; i < std::min(packages.size(), kImagesShown); ++i) {
      const auto& package = *packages[i];
      std::string layers;
      for (const auto layer : package.layers) layers += fmt::format("{}{}", layers.empty() ? "" : ", ", layer);
      say("  ",
          fmt::format(
              "In {}: version {} ({}), {} in {}{}{}{}", name_of(package.image), visible(package.version, 40),
              visible(package.source, 20), human_bytes(package.bytes), count_text(package.files, "file", "files"),
              package.compressed_bytes > 0 ? fmt::format(", {} compressed", human_bytes(package.compressed_bytes)) : "",
              layers.empty() ? "" : (package.layers.size() == 1 ? ", layer " : ", layers ") + layers,
              package.gpu ? ", can use a GPU." : "."));
    }
    if (packages.size() > kImagesShown)
      say("  ", fmt::format("And in {} older images.", packages.size() - kImagesShown));
  }

  void tell_use(const usage::DistributionUse& use, const Row& row) {
    if (row.no_data) return say("  ", "No data: " + row.no_data_reason + ". That nobody used it is not known.");
    if (row.unused) {
      say("  ",
          fmt::format("Used in none of the {} heard on images that have it: at most {} of sessions use it (95 %).",
                      count_text(row.exposed_sessions, "session", "sessions"), percent_text(*row.bound)));
    } else if (row.share) {
      say("  ", fmt::format("Used in {} of {} heard on images that have it: {}, at most {} (95 %), by {}.",
                            number_text(row.sessions), count_text(row.exposed_sessions, "session", "sessions"),
                            percent_text(*row.share), percent_text(*row.bound), counted_users_text(use.users)));
    } else {
      say("  ", fmt::format("Used in {}, by {}.", count_text(row.sessions, "session", "sessions"),
                            counted_users_text(use.users)));
    }
    if (use.sessions > 0)
      say("  ", fmt::format("Imported by the user's own code in {}, only by other libraries in {}.",
                            count_text(use.direct, "session", "sessions"), number_text(use.transitive_only)));
    if (named_only(use) > 0)
      say("  ", fmt::format("Only named in a cell, when it was loaded already, in {}.",
                            count_text(named_only(use), "session", "sessions")));
    if (use.files_only > 0)
      say("  ",
          fmt::format("Only its files were opened or run in {}.", count_text(use.files_only, "session", "sessions")));
    if (!use.importers.empty()) say("  ", "Imported by " + counted_names_text(use.importers) + ".");
    if (!use.shared_with.empty())
      say("  ", "Has modules in common with " + names_text(use.shared_with) + ": what was seen may be theirs.");
    if (!use.modules.empty()) say("  ", "Modules loaded: " + counted_names_text(use.modules) + ".");
    if (use.session_copy > 0)
      say("  ", fmt::format("The image's copy was loaded in {}, a session's own in {}.",
                            count_text(use.image_copy, "session", "sessions"), number_text(use.session_copy)));
    if (use.file_sessions > 0)
      say("  ", fmt::format("Its files were opened in {}.", count_text(use.file_sessions, "session", "sessions")));
    if (use.exec_sessions > 0)
      say("  ", fmt::format("Its programs ran in {}.", count_text(use.exec_sessions, "session", "sessions")));
    if (use.notebooks > 0)
      say("  ", fmt::format("{} of those scanned {} it, {} only inside try or if.",
                            count_text(use.notebooks, "notebook", "notebooks"),
                            use.notebooks == 1 ? "imports" : "import", number_text(use.notebooks_optional)));
    if (use.first_used != 0)
      say("  ", fmt::format("First used {}, last used {}.", day_text(use.first_used), last_seen_text(use.last_used)));
  }

  void tell_months(const usage::DistributionUse& use) {
    std::vector<std::pair<std::string, std::uint64_t>> months;
    std::uint64_t most = 0;
    for (const auto& day : use.days) {
      const auto month = day_text(day.day).substr(0, 7);
      if (months.empty() || months.back().first != month) months.emplace_back(month, 0);
      months.back().second += day.sessions;
      most = std::max(most, months.back().second);
    }
    if (months.empty()) return;
    out_ << "  By month:\n";
    constexpr std::uint64_t kBar = 50;
    for (const auto& [month, sessions] : months) {
      const auto length = std::size_t(double(sessions) / double(most) * double(kBar) + 0.5);
      out_ << fmt::format("    {}  {:>12}  {}\n", month, number_text(sessions), std::string(length, '#'));
    }
  }

  void tell_failed() {
    if (explanation_.failed.empty()) return;
    out_ << "\nFailed imports\n";
    for (const auto& failed : explanation_.failed) {
      say("  ",
          fmt::format("{} was imported in vain in {}, by {}, last {}{}.", visible(failed.module, 80),
                      count_text(failed.sessions, "session", "sessions"), counted_users_text(failed.users),
                      last_seen_text(failed.last_day),
                      failed.distribution.empty() ? "" : fmt::format("; {} has it", visible(failed.distribution, 60))));
    }
  }

  void tell_evidence() {
    struct Kind {
      std::string_view name, heading;
    };
    // Packages, importers and months were told above.
    static constexpr auto kKinds = std::to_array<Kind>({{"notebook", "Notebooks that import it"},
                                                        {"session", "Sessions"},
                                                        {"install", "Installed by sessions"},
                                                        {"failed", "Failed imports, one by one"},
                                                        {"file", "Files opened"}});
    for (const auto& kind : kKinds) tell_evidence(kind.name, kind.heading);
  }

  void tell_evidence(std::string_view kind, std::string_view heading) {
    std::size_t shown = 0, all = 0;
    for (const auto& evidence : explanation_.evidence) {
      if (evidence.kind != kind) continue;
      if (all++ == 0) out_ << '\n' << heading << '\n';
      if (shown == kEvidenceShown) continue;
      ++shown;
      std::string line;
      const auto add = [&line](const std::string& part) {
        if (!part.empty()) line += (line.empty() ? "" : "  ") + part;
      };
      add(last_seen_text(evidence.day));
      add(name_of(evidence.image));
      if (evidence.count > 1) add(number_text(evidence.count) + " ×");
      add(visible(evidence.detail));
      say("  ", line);
    }
    if (all > shown) say("  ", fmt::format("… {} more: --json", number_text(all - shown)));
  }

  void tell_where_looked() {
    std::uint64_t heard = 0, unknown = 0;
    std::vector<std::string> names;
    for (const auto& image : explanation_.images) {
      heard += image.heard;
      unknown += image.has_inventory ? 0 : 1;
      names.push_back(image_name(image));
    }
    out_ << '\n';
    if (names.empty()) return say("", "Looked at: the whole database, which knows no image and no session yet.");
    say("", fmt::format("Looked at: {} ({}){}, {} heard, and all notebooks scanned.",
                        count_text(names.size(), "image", "images"), names_text(names),
                        unknown == 0 ? "" : fmt::format(", the packages of {} unknown", unknown),
                        count_text(heard, "session", "sessions")));
  }

  const usage::Explanation& explanation_;
  std::ostream& out_;
  const usage::Snapshot snapshot_;
  const Scene scene_;
};

}  // namespace

void write_explanation(const usage::Explanation& explanation, std::ostream& out) { Story(explanation, out).tell(); }

}  // namespace varve::report
