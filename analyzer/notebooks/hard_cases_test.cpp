// The cases of test_data/*.txt: text of notebooks, and beside it by hand what must be found in it. The form, and the
// letters that names begin with, are told in test_data/README.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "analyzer/notebooks/findings.h"

namespace varve::notebooks {
namespace {

struct HardCase {
  std::string name;
  std::string file;
  std::vector<std::string> cells;
  std::vector<std::string> expected;  // in the form of describe()
};

std::ostream& operator<<(std::ostream& out, const HardCase& hard) { return out << hard.file << ": " << hard.name; }

std::string place(std::uint32_t cell, std::uint32_t line) {
  return (cell == 1 ? "" : std::to_string(cell) + ":") + std::to_string(line) + " ";
}

std::string describe(const Import& found) {
  std::string text = place(found.cell, found.line) + std::string(import_kind_name(found.kind)) + " " +
                     (found.unknown_name ? "?" : found.name);
  if (!found.unknown_name && found.module != found.name) text += " of " + (found.module.empty() ? "-" : found.module);
  if (found.local) text += " local";
  if (found.rescued) text += " rescued";
  if (found.written_file) text += " written";
  return text;
}

std::string describe(const Install& found) {
  return place(found.cell, found.line) + "install " + found.tool + " " + (found.package.empty() ? "-" : found.package) +
         " " + found.argument + (found.upgrade ? " +upgrade" : "") + (found.remove ? " +remove" : "");
}

std::string describe(const Hint& found) { return place(found.cell, found.line) + "hint " + found.kind; }

std::vector<std::string> describe_all(const Findings& findings) {
  std::vector<std::string> all;
  for (const auto& found : findings.imports) all.push_back(describe(found));
  for (const auto& found : findings.installs) all.push_back(describe(found));
  for (const auto& found : findings.hints) all.push_back(describe(found));
  return all;
}

// \r, \t, \f, \0, \xNN and \\ of a case whose text could not stand in a file as it is.
std::string without_escapes(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    switch (const char c = text[++i]) {
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'f':
        out += '\f';
        break;
      case '0':
        out += '\0';
        break;
      case 'x':
        out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
        i += 2;
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<HardCase> read_file(const std::filesystem::path& path) {
  std::vector<HardCase> cases;
  std::ifstream file(path);
  bool in_text = false, escapes = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("==== ")) {
      std::istringstream words(line.substr(5));
      HardCase next;
      words >> next.name;
      next.file = path.filename().string();
      next.cells.emplace_back();
      std::string word;
      escapes = words >> word && word == "escapes";
      cases.push_back(next);
      in_text = true;
    } else if (cases.empty()) {
      continue;
    } else if (line == "---- cell") {
      cases.back().cells.emplace_back();
    } else if (line == "----") {
      in_text = false;
    } else if (in_text) {
      cases.back().cells.back() += (escapes ? without_escapes(line) : line) + "\n";
    } else if (!line.empty()) {
      cases.back().expected.push_back(line);
    }
  }
  return cases;
}

std::vector<HardCase> all_cases() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(VARVE_HARD_CASES)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<HardCase> cases;
  for (const auto& file : files) {
    for (auto& hard : read_file(file)) cases.push_back(std::move(hard));
  }
  return cases;
}

class HardCaseTest : public testing::TestWithParam<HardCase> {};

TEST_P(HardCaseTest, FindsWhatIsWrittenBeside) {
  const auto& hard = GetParam();
  std::vector<Cell> cells;
  for (std::size_t i = 0; i < hard.cells.size(); ++i)
    cells.push_back({.text = hard.cells[i], .number = static_cast<std::uint32_t>(i + 1)});
  EXPECT_THAT(describe_all(read_python(cells)), testing::UnorderedElementsAreArray(hard.expected))
      << hard.cells.front();
}

INSTANTIATE_TEST_SUITE_P(All, HardCaseTest, testing::ValuesIn(all_cases()), [](const auto& info) {
  std::string name = info.param.file.substr(0, info.param.file.find('.')) + "_" + info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
});

TEST(HardCases, AreAtLeastThreeHundred) { EXPECT_GE(all_cases().size(), 300u); }

}  // namespace
}  // namespace varve::notebooks
