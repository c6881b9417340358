// RECORD and lists of paths. Whatever they hold, a resolved path stays in the tree.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "analyzer/python/install_record.h"
#include "analyzer/python/module_file.h"

namespace {

using namespace varve::python;

void require(bool fact) {
  if (!fact) std::abort();
}

void use(std::string_view path) {
  require(!path.empty() && path.size() <= kMaxRecordPathBytes && path.find('\0') == std::string_view::npos &&
          path.find('\\') == std::string_view::npos);
  if (const auto module = module_of_file(path)) require(is_dotted_name(module->dotted));
  const auto resolved = resolve_path("usr/lib/python3/dist-packages", path);
  if (!resolved) return;
  require(!resolved->empty() && resolved->front() != '/' && resolved->back() != '/');
  require(("/" + *resolved + "/").find("/../") == std::string::npos && resolved->find("//") == std::string::npos);
  require(resolve_path("", *resolved) == resolved);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::uint64_t entries = 0;
  const auto tally = read_record(text, [&](const RecordEntry& entry) {
    ++entries;
    use(entry.path);
  });
  require(tally.entries == entries && (tally.unreadable == 0) == (tally.first_unreadable == 0));
  read_path_list(text, use);
  return 0;
}
