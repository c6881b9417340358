// An image whose records are hostile: the input is cut into files of the names that the inventory reads, and links
// between them.
#include <array>
#include <cstdlib>
#include <string>

#include "analyzer/packages/inventory.h"
#include "core/base/errors.h"
#include "testing/memory_source.h"

namespace {

// %: a letter that the input chooses, so that records meet.
constexpr std::array<std::string_view, 40> kNames{"s/%-1.0.dist-info/METADATA",
                                                  "s/%-1.0.dist-info/RECORD",
                                                  "s/%-1.0.dist-info/top_level.txt",
                                                  "s/%-1.0.dist-info/entry_points.txt",
                                                  "s/%-1.0.dist-info/direct_url.json",
                                                  "s/%-1.0.dist-info/INSTALLER",
                                                  "s/%-2.0.dist-info/METADATA",
                                                  "s/%-2.0.dist-info/RECORD",
                                                  "s/%.egg-info/PKG-INFO",
                                                  "s/%.egg-info/requires.txt",
                                                  "s/%.egg-info/installed-files.txt",
                                                  "s/%.egg-info/SOURCES.txt",
                                                  "s/%-1.0-py3.11.egg-info",
                                                  "s/%-1.0-py3.11.egg/EGG-INFO/PKG-INFO",
                                                  "s/%.pth",
                                                  "s/%.egg-link",
                                                  "s/__editable___%_finder.py",
                                                  "s/%/__init__.py",
                                                  "s/%/%/__init__.py",
                                                  "s/%/mod.py",
                                                  "s/%.py",
                                                  "s/%.cpython-311-x86_64-linux-gnu.so",
                                                  "s/%/__pycache__/__init__.cpython-311.pyc",
                                                  "s/%/_vendor/a-1.0.dist-info/METADATA",
                                                  "p/conda-meta/%-1-0.json",
                                                  "p/bin/python3.11",
                                                  "p/lib/python3.11/os.py",
                                                  "p/include/python3.11/patchlevel.h",
                                                  "p/pyvenv.cfg",
                                                  "p/conda-meta/python-3.11.2-0.json",
                                                  "var/lib/dpkg/status",
                                                  "var/lib/dpkg/status.d/%",
                                                  "var/lib/dpkg/status.d/%.md5sums",
                                                  "var/lib/dpkg/info/%.list",
                                                  "var/lib/dpkg/info/%:amd64.list",
                                                  "var/lib/dpkg/diversions",
                                                  "usr/bin/python3.11",
                                                  "usr/lib/python3.11/os.py",
                                                  "usr/lib/python3/dist-packages/%.pth",
                                                  "usr/lib/python3/dist-packages/%-1.0.dist-info/METADATA"};

class Input {
 public:
  explicit Input(std::string_view bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  unsigned byte() {
    if (rest_.empty()) return 0;
    const auto value = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  // Up to the next 0xFF, or the end.
  std::string_view text() {
    const auto end = std::min(rest_.find('\xff'), rest_.size());
    const auto text = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return text;
  }

 private:
  std::string_view rest_;
};

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const varve::packages::Inventory& inventory) {
  const auto count = inventory.distributions.size();
  for (const auto& [name, owners] : inventory.modules) {
    require(!owners.empty());
    for (const auto owner : owners) require(owner < count);
    require(!inventory.modules.owners(name).empty());
  }
  for (const auto& [path, owners] : inventory.path_owners) {
    require(!owners.empty() && !path.empty() && path.front() != '/');
    for (const auto owner : owners) require(owner < count);
    require(inventory.owners_of_path(path.ends_with('/') ? path + "x" : path) == owners);
  }
  for (const auto& one : inventory.distributions)
    require(one.shared_files <= one.files && (one.vendored_by.empty() || one.files == 0));
  varve::packages::check_inventory(inventory);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input({reinterpret_cast<const char*>(data), size});
  varve::test::MemorySource source;
  const auto settings = input.byte();
  if ((settings & 1) != 0) source.facts_.environment["PATH"] = "/p/bin:/usr/bin";
  if ((settings & 2) != 0) source.facts_.environment["PYTHONPATH"] = "/s:/s/../p";
  if ((settings & 4) != 0) source.link("p/lib/python3.11/site-packages", "../../../s");
  for (int files = 0; !input.empty() && files < 64; ++files) {
    const auto choice = input.byte();
    auto name = std::string(kNames[choice % kNames.size()]);
    const char letter = char('a' + choice / kNames.size());
    for (auto& c : name) c = c == '%' ? letter : c;
    const auto content = input.text();
    if (content.starts_with("->")) {
      source.link(name, std::string(content.substr(2)));
    } else {
      source.add(name, content, choice % 3);
    }
  }
  try {
    check(varve::packages::read_inventory(source));
  } catch (const varve::Unsupported&) {
    // Beyond a limit: an answer too.
  }
  return 0;
}
