#pragma once
// The sections of the HTML page, each as markup without its heading. The room's own; write_html() puts them together.
#include <string>

#include "analyzer/report/report.h"

namespace varve::report {

std::string figures_section(const Report& report);
std::string cautions_section(const Report& report);
std::string unused_section(const Report& report);
std::string use_section(const Report& report);
std::string layers_section(const Report& report);
std::string all_section(const Report& report);
std::string differ_section(const Report& report);
std::string demand_section(const Report& report);
std::string gpu_section(const Report& report);
std::string hints_section(const Report& report);
std::string coverage_section(const Report& report);

// Users as the page shows them, which travels further than the database does: below the report's k only "under k" or an
// upper end.
std::string page_users(const Report& report, usage::UserCount users);

// A bar as wide as `share` of its cell, in the colour of `kind`, a class of report.css; a second part may follow.
std::string bar(double share, std::string_view kind, double second = 0, std::string_view second_kind = "");

// Sessions over the window in at most `bins` equal steps.
std::vector<std::uint64_t> binned(const std::vector<usage::DayCount>& days, usage::DayRange window, std::size_t bins);

// 0: never used, 1 … 5: rising share of sessions; 'n' no data. As class of report.css: "s0", "sn".
char use_step(const Row& row);

}  // namespace varve::report
