// An image whose start files and modules are hostile: the input is cut into files of the names that plans read.
#include <array>
#include <cstdlib>
#include <string>

#include "analyzer/prune/start_needs.h"
#include "analyzer/prune/static_imports.h"
#include "core/base/errors.h"
#include "testing/memory_source.h"

namespace {

constexpr std::string_view kFolder = "p/lib/python3.11/site-packages/";

// %: the site folder.
constexpr std::array<std::string_view, 16> kStartFiles{"%one.pth",
                                                       "%one.start",
                                                       "%one/__init__.py",
                                                       "%one/sub/mod.py",
                                                       "%two/__init__.py",
                                                       "%two/one.py",
                                                       "%loose.py",
                                                       "p/share/jupyter/kernels/k/kernel.json",
                                                       "p/etc/jupyter/jupyter_server_config.d/x.json",
                                                       "root/.jupyter/jupyter_config.py",
                                                       "root/.ipython/profile_default/startup/a.ipy",
                                                       "p/bin/start.sh",
                                                       "p/bin/tool",
                                                       "opt/app.py",
                                                       "%one-1.0.dist-info/RECORD",
                                                       "%two-1.0.dist-info/RECORD"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  test::MemorySource source;
  source.facts_.environment["PATH"] = "/p/bin";
  source.add("p/bin/python3.11", "ELF").add("p/lib/python3.11/os.py", "");
  const std::string site(kFolder);
  for (const std::string name : {"one", "two"}) {
    source.add(site + name + "-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n");
    source.add(site + name + "-1.0.dist-info/RECORD", name + "/__init__.py,,\n" + name + "/sub/mod.py,,\n");
    source.add(site + name + "/__init__.py", "");
  }
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  oci::ImageConfig config;
  config.cmd = {"start.sh"};
  for (int files = 0; !rest.empty() && files < 64; ++files) {
    auto path = std::string(kStartFiles[static_cast<unsigned char>(rest.front()) % kStartFiles.size()]);
    if (path.starts_with('%')) path.replace(0, 1, kFolder);
    rest.remove_prefix(1);
    const auto end = std::min(rest.find('\xff'), rest.size());
    source.add(path, rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto inventory = packages::read_inventory(source);
  const prune::Nodes nodes(inventory);
  for (const auto& root : prune::start_needs(source, nodes, config).roots)
    require(root.node < nodes.count() && !root.reason.kind.empty() && !root.reason.text.empty());
  prune::Graph graph;
  graph.distributions = nodes.count();
  Progress progress;
  const CancelFlag cancel;
  prune::add_static_imports(source, nodes, {progress, cancel}, graph);
  for (const auto& edge : graph.edges)
    require(edge.from < nodes.count() && edge.to < nodes.count() && edge.from != edge.to && !edge.text.empty());
  return 0;
}
