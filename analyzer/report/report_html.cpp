#include <ostream>

#include "analyzer/report/html.h"
#include "analyzer/report/page.h"
#include "analyzer/report/words.h"
#include "core/base/text/calendar.h"

namespace varve::report {

void write_html(const Report& report, std::ostream& out) {
  // Only our own two blocks may run or style; nothing may be loaded from anywhere, not even from beside the page.
  const auto style = embedded_file(page::page_files(), "report.css"),
             script = embedded_file(page::page_files(), "report.js");
  const auto policy =
      fmt::format("default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
                  policy_hash(script), policy_hash(style));
  const auto scope = fmt::format("{}. {}.", scope_text(report), coverage_text(report));
  out << fill(
      embedded_file(page::page_files(), "page.html"),
      {{"policy", policy},
       {"title", html("Who uses what: " + scope_text(report))},
       {"css", std::string(style)},
       {"js", std::string(script)},
       {"headline", html(headline(report), 1000)},
       {"scope", html(scope, 1000)},
       {"figures", figures_section(report)},
       {"cautions", cautions_section(report)},
       {"unused", unused_section(report)},
       {"use", use_section(report)},
       {"layers", layers_section(report)},
       {"all", all_section(report)},
       {"differ", differ_section(report)},
       {"demand", demand_section(report)},
       {"gpu", gpu_section(report)},
       {"hints", hints_section(report)},
       {"coverage", coverage_section(report)},
       {"made", fmt::format("Made on {} by <code>varve usage report</code>. This page loads nothing and sends nothing.",
                            day_text(report.made_on))}});
}

}  // namespace varve::report
