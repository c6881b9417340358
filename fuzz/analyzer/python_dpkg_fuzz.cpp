#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "analyzer/python/dpkg.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve::python;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto check = [](const DpkgPackage& package) {
    if (package.name.empty() || package.name.find('/') != std::string::npos) std::abort();
    for (const auto& dependency : package.depends) {
      if (dependency.empty()) std::abort();
    }
  };
  read_dpkg_status(text, DpkgFile::kStatus, check);
  read_dpkg_status(text, DpkgFile::kStatusD, check);
  read_dpkg_list(text, [](std::string_view path) {
    if (path.empty() || path.front() == '/') std::abort();
  });
  read_dpkg_md5sums(text, [](std::string_view path, std::string_view) {
    if (path.empty()) std::abort();
  });
  parse_dpkg_info_name(text);
  return 0;
}
