// Prints what is found in files, one JSON object a line. It takes the files' names from its input; each
// file is one Python cell.
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "analyzer/notebooks/findings.h"
#include "core/base/files/mapped_file.h"

namespace {

using namespace varve;
using namespace varve::notebooks;

nlohmann::json as_json(const Import& found) {
  return {{"name", found.name},
          {"module", found.module},
          {"line", found.line},
          {"kind", import_kind_name(found.kind)},
          {"local", found.local},
          {"rescued", found.rescued},
          {"unknown_name", found.unknown_name},
          {"cell", found.cell},
          {"written_file", found.written_file}};
}

void print_file(const std::string& path) {
  const auto file = MappedFile::open(path);
  const auto bytes = file.bytes();
  const Cell cell{.text = {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, .number = 1};
  const auto findings = read_python({cell});
  nlohmann::json line = {{"path", path}, {"imports", nlohmann::json::array()}, {"installs", nlohmann::json::array()}};
  for (const auto& found : findings.imports) line["imports"].push_back(as_json(found));
  for (const auto& found : findings.installs) {
    line["installs"].push_back(
        {{"tool", found.tool}, {"package", found.package}, {"argument", found.argument}, {"line", found.line}});
  }
  for (const auto& hint : findings.hints) line["hints"].push_back({{"kind", hint.kind}, {"line", hint.line}});
  std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

}  // namespace

int main() try {
  for (std::string path; std::getline(std::cin, path);) print_file(path);
  return 0;
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
