// For test_bytecode_imports.py: what bytecode imports. Paths of .pyc files on standard input, one a line -> JSON,
// {path: [[level, name, [members]], ...] or null}.
#include <iostream>

#include <nlohmann/json.hpp>

#include "core/base/files/file.h"
#include "core/index/python/bytecode_imports.h"

int main() {
  using nlohmann::json;
  json all = json::object();
  for (std::string path; std::getline(std::cin, path);) {
    const auto bytes = varve::read_file(path);
    const auto imports = varve::index::imports_of(bytes);
    auto& said = all[path] = imports ? json::array() : json();
    if (imports)
      for (const auto& [level, name, members] : *imports) said.push_back({level, name, members});
  }
  std::cout << all;
}
