#include <algorithm>

#include "analyzer/report/html.h"
#include "analyzer/report/page.h"
#include "analyzer/report/text.h"
#include "analyzer/report/words.h"
#include "core/base/text/units.h"

namespace varve::report {
namespace {

// Opens a table that scrolls on its own where it is too wide. Headings may carry classes after a bar: "Sessions|r l".
std::string open_table(std::string_view label, std::string_view caption,
                       std::initializer_list<std::string_view> headings) {
  auto out = fmt::format(
      "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table "
      "class=\"long\"><caption>{}</caption>\n<thead><tr>",
      label, caption);
  for (const auto heading : headings) {
    const auto split = std::min(heading.find('|'), heading.size());
    const auto classes = split == heading.size() ? std::string_view() : heading.substr(split + 1);
    put(out, "<th scope=\"col\" class=\"{}\">{}</th>", classes, heading.substr(0, split));
  }
  return out + "</tr></thead>\n<tbody>\n";
}

constexpr std::string_view kClose = "</tbody></table></div>\n";

std::string failed_table(const Report& report) {
  if (report.snapshot.failed.empty()) return "<p>No import failed that may be named.</p>";
  auto out = open_table("Failed imports", "Names that sessions imported in vain",
                        {"Module", "Sessions|r", "Users|r l", "Last|l", "What to add"});
  for (const auto& failed : report.snapshot.failed)
    put(out,
        "<tr><th scope=\"row\">{}</th><td class=\"r\">{}</td><td class=\"r l\">{}</td><td class=\"l "
        "w\">{}</td><td>{}</td></tr>\n",
        html(failed.module, 80), number_text(failed.sessions), page_users(report, failed.users),
        last_seen_text(failed.last_day),
        failed.distribution.empty() ? "<span class=\"q\">not known</span>" : html(failed.distribution, 80));
  return out.append(kClose);
}

std::string reinstall_table(const Report& report) {
  if (report.snapshot.reinstalls.empty()) return "<p>No session installed over the image.</p>";
  auto out = open_table("Reinstalls", "What sessions installed, added or removed while they ran",
                        {"Distribution", "From", "To", "Why", "Sessions|r", "Users|r l"});
  for (const auto& reinstall : report.snapshot.reinstalls)
    put(out,
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"r\">{}</td><td class=\"r "
        "l\">{}</td></tr>\n",
        html(reinstall.distribution, 80),
        reinstall.from.empty() ? "<span class=\"q\">absent</span>" : html(reinstall.from, 40),
        reinstall.to.empty() ? "<span class=\"q\">removed</span>" : html(reinstall.to, 40), html(reinstall.why, 20),
        number_text(reinstall.sessions), page_users(report, reinstall.users));
  return out.append(kClose);
}

std::string outside_table(const Report& report) {
  std::string rows;
  for (const auto& row : report.rows) {
    if (row.package != nullptr || row.sessions == 0) continue;
    put(rows,
        "<tr><th scope=\"row\">{}</th><td class=\"r\">{}</td><td class=\"r\">{}</td><td class=\"r l\">{}</td></tr>\n",
        html(row.use->name, 80), number_text(row.sessions), page_users(report, row.use->users),
        last_seen_text(row.use->last_used));
  }
  if (rows.empty()) return "";
  return "<h3>Used, but in no image</h3>\n" +
         open_table("In no image", "Copies that sessions brought with them",
                    {"Distribution", "Sessions|r", "Users|r", "Last used|r l"}) +
         rows + std::string(kClose);
}

std::string unresolved_table(const Report& report) {
  std::vector<std::pair<std::string, std::uint64_t>> modules(report.snapshot.unresolved.begin(),
                                                             report.snapshot.unresolved.end());
  if (modules.empty()) return "";
  std::stable_sort(modules.begin(), modules.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  auto out = "<h3>Modules of no known distribution</h3>\n" +
             open_table("Modules of no known distribution",
                        "Loaded in sessions, and no known image says whose they are", {"Module", "Sessions|r"});
  for (const auto& [module, sessions] : modules)
    put(out, "<tr><th scope=\"row\">{}</th><td class=\"r\">{}</td></tr>\n", html(module, 80), number_text(sessions));
  return out.append(kClose);
}

std::string gpu_images_table(const Report& report) {
  auto out = open_table("GPU sessions", "Sessions that had a GPU, by image",
                        {"Image", "With a GPU|r", "Never touched it|r", "Hours untouched|r l", "Hours idle|r l",
                         "Imported nothing for it|r l"});
  for (const auto& image : report.snapshot.images) {
    if (image.gpu_sessions == 0) continue;
    put(out,
        "<tr><th scope=\"row\">{}</th><td class=\"r\">{}</td><td class=\"r\">{}</td><td class=\"r l\">{}</td><td "
        "class=\"r l\">{}</td><td class=\"r l\">{}</td></tr>\n",
        html(image_name(image)), number_text(image.gpu_sessions),
        number_text(image.gpu_sessions - std::min(image.gpu_sessions, image.gpu_used_sessions)),
        html(hours_text(image.gpu_unused_seconds)), html(hours_text(image.gpu_idle_seconds)),
        number_text(image.gpu_incapable_sessions));
  }
  return out.append(kClose);
}

std::string notebooks_table(const Report& report) {
  std::string rows;
  for (const auto& notebook : report.snapshot.notebooks) {
    if (notebook.imports_gpu_capable) continue;
    std::string names;
    for (std::size_t i = 0; i < std::min<std::size_t>(6, notebook.distributions.size()); ++i)
      put(names, "{}{}", i == 0 ? "" : ", ", html(notebook.distributions[i], 60));
    put(rows, "<tr><th scope=\"row\">{}</th><td class=\"r\">{}</td><td>{}</td></tr>\n", html(notebook.path, 100),
        notebook.copies, names);
  }
  if (rows.empty()) return "";
  return "<h3>Notebooks that import nothing for a GPU</h3>\n" +
         open_table("Notebooks without GPU libraries", "They need none, wherever they run",
                    {"Notebook", "Copies|r", "Imports"}) +
         rows + std::string(kClose);
}

}  // namespace

std::string differ_section(const Report& report) {
  std::string rows;
  for (const auto& row : report.rows) {
    for (const auto& text : row.disagreements)
      put(rows, "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"r l\">{}</td><td class=\"r l\">{}</td></tr>\n",
          html(row.use->name, 80), html(text, 500), row.no_data ? "no data" : number_text(row.sessions),
          report.snapshot.notebooks_scanned == 0 ? "no data" : number_text(row.use->notebooks));
  }
  if (rows.empty()) return "<p>Notebooks, sessions and file accesses say the same.</p>";
  auto out = fmt::format(
      "<p>What notebooks say, what sessions do and which copy was loaded are counted apart; here they differ. {} "
      "scanned.</p>\n",
      count_text(report.snapshot.notebooks_scanned, "notebook was", "notebooks were"));
  return out +
         open_table("Disagreements", "Most sessions first", {"Name", "What differs", "Sessions|r l", "Notebooks|r l"}) +
         rows + std::string(kClose);
}

std::string demand_section(const Report& report) {
  return "<h3>Imports that failed: what to add</h3>\n" + failed_table(report) + outside_table(report) +
         unresolved_table(report) + "<h3>Installed over the image: which pins to fix</h3>\n" + reinstall_table(report);
}

std::string gpu_section(const Report& report) {
  const auto sentences = gpu_sentences(report);
  if (sentences.empty()) return "<p>No session with a GPU was heard.</p>";
  std::string out;
  for (const auto& sentence : sentences) put(out, "<p>{}</p>\n", html(sentence, 1000));
  if (report.gpu.sessions > 0) out += gpu_images_table(report);
  return out + notebooks_table(report);
}

std::string hints_section(const Report& report) {
  if (report.snapshot.hints.empty()) return "<p>None was found in the notebooks scanned.</p>";
  auto out =
      "<p>Places that may waste GPU memory or run out of it. A hint is a reason to look, never a verdict.</p>\n" +
      open_table("Hints", "By notebook", {"Notebook", "Place", "Hint"});
  for (const auto& hint : report.snapshot.hints)
    put(out, "<tr><th scope=\"row\">{}</th><td class=\"w\">{}</td><td>{} <span class=\"tag q\">{}</span></td></tr>\n",
        html(hint.notebook, 100), html(place_text(hint.cell, hint.line)), html(hint.text, 300), html(hint.kind, 60));
  return out.append(kClose);
}

}  // namespace varve::report
