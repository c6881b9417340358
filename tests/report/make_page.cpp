// Writes a report of a generated fleet in one of its forms: what the tests of the page, and whoever works on its looks,
// open in a browser.
#include <cstdlib>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "analyzer/report/report.h"
#include "tests/report/generated_snapshot.h"

namespace {

// fleet DISTRIBUTIONS IMAGES DAYS | hostile | empty
varve::usage::Snapshot snapshot_of(const std::vector<std::string>& words) {
  if (words.at(1) == "hostile") return varve::report_test::hostile_snapshot();
  if (words.at(1) == "empty") return {};
  return varve::report_test::fleet_snapshot({.distributions = std::uint32_t(std::stoul(words.at(2))),
                                             .images = std::uint32_t(std::stoul(words.at(3))),
                                             .days = std::stoi(words.at(4))});
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto report = varve::report::make_report(snapshot_of(words), varve::report_test::kToday);
  const auto& form = words.at(0);
  if (form == "html")
    varve::report::write_html(report, std::cout);
  else if (form == "csv")
    varve::report::write_csv(report, std::cout);
  else if (form == "table")
    varve::report::write_table(report, std::cout, {.limit = 0});
  else if (form == "unused")
    varve::report::write_table(report, std::cout, {.unused_only = true});
  else if (form == "json")
    std::cout << varve::report::report_json(report).dump(1, ' ', false, nlohmann::json::error_handler_t::replace)
              << '\n';
  else
    return 2;
  std::cout.flush();
  return std::cout ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "make_page (html|csv|table|unused|json) (fleet DISTRIBUTIONS IMAGES DAYS|hostile|empty): "
            << error.what() << '\n';
  return 2;
}
