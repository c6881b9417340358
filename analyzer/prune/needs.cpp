#include "analyzer/prune/needs.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "analyzer/python/name.h"
#include "core/base/text/glob.h"
#include "core/base/text/image_path.h"

namespace varve::prune {
namespace {

using packages::Distribution;
using packages::Need;
using packages::Source;

// Folders that careless wheels install beside their package: owned by many who know nothing of each other.
constexpr std::array<std::string_view, 14> kStrayFolders{"tests",    "test",    "testing", "docs",       "doc",
                                                         "examples", "example", "scripts", "benchmarks", "benchmark",
                                                         "samples",  "tools",   "utils",   "build"};
constexpr std::size_t kMinConsumerName = 3;
constexpr int kMaxPackageDepth = 64;  // deeper ones only somebody makes who wants our time

std::string extra_key(std::uint32_t node, const std::string& extra) {
  return fmt::format("{}[{}]", node, python::normalize_name(extra));
}

// Who loads the entry points of a group.
class GroupLoaders {
 public:
  GroupLoaders(const Nodes& nodes, const std::vector<GroupConsumer>& more_consumers)
      : nodes_(nodes), more_consumers_(more_consumers) {
    for (std::uint32_t node = 0; node < nodes.count(); ++node) {
      for (const auto member : nodes.all()[node].members) {
        for (const auto& import : nodes.inventory().distributions[member].imports)
          by_import_[python::normalize_name(import)].push_back(node);
      }
    }
  }

  // Absent: nobody is known to. Empty: somebody is, who is not installed.
  std::optional<std::vector<std::uint32_t>> of(const std::string& group) const {
    if (group == "console_scripts" || group == "gui_scripts") return std::vector<std::uint32_t>();
    std::optional<std::vector<std::uint32_t>> found;
    for (const auto* table : {&known_group_consumers(), &more_consumers_}) {
      for (const auto& known : *table) {
        if (!glob_matches(known.group, group)) continue;
        if (!found) found.emplace();
        for (const auto node : nodes_.named(known.distribution)) found->push_back(node);
      }
    }
    if (found && !found->empty()) return found;
    auto by_prefix = named_by_prefix(group);
    return by_prefix.empty() ? found : by_prefix;
  }

 private:
  // "jupyter_client.kernel_provisioners": the longest beginning that is a distribution, or that one of them gives to
  // import.
  std::vector<std::uint32_t> named_by_prefix(const std::string& group) const {
    std::vector<std::uint32_t> found;
    for (auto prefix = std::string_view(group); prefix.size() >= kMinConsumerName;) {
      const auto name = python::normalize_name(prefix);
      found = nodes_.named(name);
      if (found.empty()) {
        if (const auto by_import = by_import_.find(name); by_import != by_import_.end()) found = by_import->second;
      }
      const auto cut = prefix.find_last_of("._-:/");
      if (!found.empty() || cut == std::string_view::npos) break;
      prefix = prefix.substr(0, cut);
    }
    return found;
  }

  const Nodes& nodes_;
  const std::vector<GroupConsumer>& more_consumers_;
  std::map<std::string, std::vector<std::uint32_t>, std::less<>> by_import_;
};

class GraphMaker {
 public:
  GraphMaker(const Nodes& nodes, const index::FlatTree::Entries& files,
             const std::vector<GroupConsumer>& more_consumers)
      : nodes_(nodes), files_(files), inventory_(nodes.inventory()), loaders_(nodes, more_consumers) {
    graph_.distributions = nodes.count();
  }

  Graph make() {
    for (std::uint32_t node = 0; node < nodes_.count(); ++node) {
      for (const auto member : nodes_.all()[node].members) {
        const auto& one = inventory_.distributions[member];
        for (const auto& need : one.needs)
          need.from == Source::kPip ? add_python_need(node, one, need) : add_package_need(node, need);
        add_optional_extras(node, one);
        add_entry_points(node, one);
        add_scripts(node, one);
      }
    }
    add_path_edges();
    const auto order = [](const Edge& one, const Edge& other) {
      return std::tie(one.from, one.to, one.kind, one.soft, one.text) <
             std::tie(other.from, other.to, other.kind, other.soft, other.text);
    };
    std::ranges::sort(graph_.edges, order);
    graph_.edges.erase(std::unique(graph_.edges.begin(), graph_.edges.end()), graph_.edges.end());
    return std::move(graph_);
  }

 private:
  void add(std::uint32_t from, std::uint32_t to, EdgeKind kind, std::string text, bool soft = false) {
    if (from != to)
      graph_.edges.push_back({.from = from, .to = to, .kind = kind, .soft = soft, .text = std::move(text)});
  }

  std::uint32_t extra_node(std::uint32_t of, const std::string& extra) {
    const auto [found, is_new] = extras_.try_emplace(extra_key(of, extra), graph_.nodes());
    if (is_new) graph_.extras.push_back({.of = of, .name = python::normalize_name(extra)});
    return found->second;
  }

  // Those of the name that some Python of `site` sees; all of the name where no Python sees the two together.
  std::vector<std::uint32_t> python_targets(const std::string& name, const std::string& site) const {
    std::vector<std::uint32_t> all, together;
    for (const auto node : nodes_.named(name)) {
      if (nodes_.all()[node].name != name) continue;  // a package's name means nothing to Python
      all.push_back(node);
      if (std::ranges::any_of(nodes_.all()[node].members, [&](std::uint32_t member) {
            return seen_together(inventory_, inventory_.distributions[member].site, site);
          }))
        together.push_back(node);
    }
    return together.empty() ? all : together;
  }

  void add_python_need(std::uint32_t node, const Distribution& one, const Need& need) {
    if (need.satisfied_by.empty()) return;
    const auto& requirement = need.requirement;
    const auto text = requirement.text.substr(0, requirement.text.find(';'));
    const auto trimmed = text.substr(0, text.find_last_not_of(" \t") + 1);
    for (const auto target : python_targets(requirement.normalized, one.site)) {
      if (need.applies) add(node, target, EdgeKind::kRequires, "needs " + trimmed);
      for (const auto& extra : need.extras)
        add(extra_node(node, extra), target, EdgeKind::kExtra,
            fmt::format("needs {} for its extra [{}]", trimmed, extra));
      // "name[extra]" asks for the extra, too.
      for (const auto& wanted : requirement.extras) {
        if (need.applies) add(node, extra_node(target, wanted), EdgeKind::kRequires, "needs " + trimmed);
        for (const auto& extra : need.extras)
          add(extra_node(node, extra), extra_node(target, wanted), EdgeKind::kExtra, "needs " + trimmed);
      }
    }
  }

  // pip does not record which extras somebody asked for. One of whose needs some are installed may have been: that
  // keeps these from being archived, and no more.
  void add_optional_extras(std::uint32_t node, const Distribution& one) {
    std::set<std::string> installed;
    for (const auto& need : one.needs) {
      if (!need.satisfied_by.empty()) installed.insert(need.extras.begin(), need.extras.end());
    }
    for (const auto& extra : installed)
      add(node, extra_node(node, extra), EdgeKind::kExtra, fmt::format("may use its extra [{}]", extra), true);
  }

  void add_package_need(std::uint32_t node, const Need& need) {
    if (need.satisfied_by.empty()) return;
    const auto source = packages::source_name(need.from);
    for (const auto target : nodes_.named(need.requirement.normalized)) {
      if (nodes_.all()[target].source == source)
        add(node, target, need.from == Source::kConda ? EdgeKind::kConda : EdgeKind::kDpkg,
            fmt::format("depends on the {} package {}", source, need.requirement.text));
    }
  }

  void add_entry_points(std::uint32_t node, const Distribution& one) {
    for (const auto& group : one.entry_point_groups) {
      for (const auto consumer : loaders_.of(group).value_or(std::vector<std::uint32_t>()))
        add(consumer, node, EdgeKind::kEntryPoint, fmt::format("loads entry points of the group {}", group));
    }
  }

  // A script may call into another distribution: `jupyter-trust` of notebook into nbformat.
  void add_scripts(std::uint32_t node, const Distribution& one) {
    for (const auto& script : one.scripts) {
      const auto module = script.target.substr(0, script.target.find(':'));
      for (const auto owner : nodes_.of_all(inventory_.modules.owners(module)))
        add(node, owner, EdgeKind::kScript,
            fmt::format("has the program {}, which runs {}", script.name, script.target));
    }
  }

  // Of the site folders that hold the path the longest, with "/"; "" = in none.
  std::string site_of(std::string_view path) const {
    for (auto slash = path.rfind('/'); slash != std::string_view::npos && slash > 0;
         slash = path.rfind('/', slash - 1)) {
      if (sites_.contains(std::string(path.substr(0, slash)))) return std::string(path.substr(0, slash + 1));
    }
    return "";
  }

  void add_path_edges() {
    for (const auto& one : inventory_.distributions) {
      if (!one.site.empty()) sites_.insert(one.site);
    }
    for (const auto& python : inventory_.interpreters) sites_.insert(python.sites.begin(), python.sites.end());
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<std::string, std::size_t>>
        shared;  // nodes -> an example and how many
    for (const auto& [path, owners] : inventory_.path_owners) {
      const auto site = site_of(path);
      if (site.empty()) continue;
      const auto of = nodes_.of_all(owners);
      if (of.size() > 1 && is_module_path(std::string_view(path).substr(site.size()), path)) {
        for (std::size_t i = 1; i < of.size(); ++i) {
          auto& [example, count] = shared[{of.front(), of[i]}];
          if (count++ == 0) example = path;
        }
      }
      add_parents(path, site, of);
    }
    for (const auto& [pair, what] : shared) {
      const auto text = what.second == 1 ? fmt::format("shares {}", what.first)
                                         : fmt::format("shares {} and {} more", what.first, what.second - 1);
      add(pair.first, pair.second, EdgeKind::kSharesPath, text);
      add(pair.second, pair.first, EdgeKind::kSharesPath, text);
    }
  }

  // Part of a module that two give as theirs. What else is shared (scripts, stray folders, the __init__ of a namespace)
  // is a matter of the path alone: it stays with its hottest owner.
  bool is_module_path(std::string_view below, const std::string& path) const {
    const auto top = below.substr(0, below.find('/'));
    if (top.empty() || top == "__pycache__" || top.ends_with(".dist-info") || top.ends_with(".egg-info") ||
        std::ranges::find(kStrayFolders, top) != kStrayFolders.end())
      return false;
    const auto is_init = [](std::string_view name) { return name.starts_with("__init__."); };
    const auto name = path.ends_with('/') ? std::string_view() : std::string_view(path).substr(path.rfind('/') + 1);
    if (is_init(name)) {
      auto dotted = std::string(below.substr(0, below.size() - name.size() - 1));
      if (dotted.ends_with("/__pycache__")) dotted.resize(dotted.size() - std::string_view("/__pycache__").size());
      std::ranges::replace(dotted, '/', '.');
      return inventory_.modules.contains(dotted);
    }
    return name.empty() || name.find(".py") != std::string_view::npos || name.find(".so") != std::string_view::npos;
  }

  // Importing a module runs the __init__ of each package above it, whoever owns that.
  void add_parents(const std::string& path, const std::string& site, const std::vector<std::uint32_t>& of) {
    const auto end = path.ends_with('/') ? path.size() - 1 : path.size();
    int depth = 0;
    for (auto slash = path.rfind('/', end - 1);
         slash != std::string::npos && slash + 1 > site.size() && depth < kMaxPackageDepth;
         slash = path.rfind('/', slash - 1), ++depth) {
      const auto init = path.substr(0, slash) + "/__init__.py";
      if (!files_.contains(init)) continue;
      const auto owners = nodes_.of_all(inventory_.owners_of_path(init));
      const bool own =
          std::ranges::any_of(of, [&](std::uint32_t node) { return std::ranges::binary_search(owners, node); });
      if (own) continue;
      for (const auto from : of) {
        for (const auto to : owners) add(from, to, EdgeKind::kNamespace, fmt::format("lies below {}", init));
      }
    }
  }

  const Nodes& nodes_;
  const index::FlatTree::Entries& files_;
  const packages::Inventory& inventory_;
  const GroupLoaders loaders_;
  std::map<std::string, std::uint32_t> extras_;
  std::set<std::string, std::less<>> sites_;
  Graph graph_;
};

}  // namespace

const std::vector<GroupConsumer>& known_group_consumers() {
  static const std::vector<GroupConsumer> known{
      {"pytest11", "pytest"},
      {"egg_info.writers", "setuptools"},
      {"jupyter_serverproxy_servers", "jupyter-server-proxy"},
      {"jupyterlab_*", "jupyterlab"},
      {"pylsp", "python-lsp-server"},
      {"pylsp_*", "python-lsp-server"},
      {"opentelemetry_*", "opentelemetry-api"},
      {"opentelemetry_*", "opentelemetry-sdk"},
      {"mypy_*", "mypy"},
      {"nbgitpuller*", "nbgitpuller"},
      {"thinc_*", "thinc"},
      {"spacy_*", "spacy"},
      {"jax_plugins", "jax"},
      {"jax_plugins", "jaxlib"},
      {"numba_extensions", "numba"},
      {"sqlalchemy.dialects", "sqlalchemy"},
      {"xarray.*", "xarray"},
      {"keyring.backends", "keyring"},
      {"pygments.*", "pygments"},
      {"lightning.*", "lightning"},
      {"pytorch_lightning.*", "pytorch-lightning"},
      {"ibis.backends", "ibis-framework"},
      {"dagster*", "dagster"},
      {"apache_airflow_provider", "apache-airflow"},
      {"airflow.*", "apache-airflow"},
      {"array_api", "array-api-tests"},
      {"babel.*", "babel"},
      {"dask_cuda*", "dask-cuda"},
      {"distutils*", "setuptools"},
      {"flake8.*", "flake8"},
      {"fsspec.*", "fsspec"},
      {"hatch", "hatchling"},
      {"hypothesis", "hypothesis"},
      {"intake.*", "intake"},
      {"jupyterhub.*", "jupyterhub"},
      {"markdown.*", "markdown"},
      {"mkdocs.*", "mkdocs"},
      {"nbconvert.*", "nbconvert"},
      {"nose.*", "nose"},
      {"nox*", "nox"},
      {"numcodecs.*", "numcodecs"},
      {"pandas_plotting_backends", "pandas"},
      {"papermill.*", "papermill"},
      {"pip.*", "pip"},
      {"poetry.*", "poetry"},
      {"prompt_toolkit.*", "prompt-toolkit"},
      {"pyinstaller*", "pyinstaller"},
      {"pyproject_hooks*", "build"},
      {"pytest*", "pytest"},
      {"rasterio.*", "rasterio"},
      {"setuptools.*", "setuptools"},
      {"sphinx*", "sphinx"},
      {"streamlit.*", "streamlit"},
      {"tensorboard_plugins", "tensorboard"},
      {"torch.*", "torch"},
      {"torchrun.*", "torch"},
      {"triton.*", "triton"},
      {"twine.*", "twine"},
      {"validate_pyproject.*", "validate-pyproject"},
      {"zarr.*", "zarr"},
  };
  return known;
}

Graph installed_graph(const Nodes& nodes, const index::FlatTree::Entries& files,
                      const std::vector<GroupConsumer>& more_consumers) {
  return GraphMaker(nodes, files, more_consumers).make();
}

void add_import_edges(const usage::Snapshot& snapshot, const Nodes& nodes, Graph& graph) {
  for (const auto& use : snapshot.distributions) {
    const auto targets = nodes.named(use.name);
    if (targets.empty()) continue;
    for (const auto& [importer, sessions] : use.importers) {
      for (const auto from : nodes.named(importer)) {
        for (const auto to : targets) {
          if (from == to || nodes.all()[to].name != use.name || nodes.all()[from].name != importer) continue;
          graph.edges.push_back(
              {.from = from,
               .to = to,
               .kind = EdgeKind::kImports,
               .soft = false,
               .text = fmt::format("imported it in {} {}", sessions, sessions == 1 ? "session" : "sessions")});
        }
      }
    }
  }
}

std::vector<Root> unknown_group_roots(const Nodes& nodes, const std::vector<GroupConsumer>& more_consumers) {
  const GroupLoaders loaders(nodes, more_consumers);
  std::vector<Root> roots;
  for (std::uint32_t node = 0; node < nodes.count(); ++node) {
    for (const auto member : nodes.all()[node].members) {
      for (const auto& group : nodes.inventory().distributions[member].entry_point_groups) {
        if (!loaders.of(group))
          roots.push_back({.node = node,
                           .reason = {.kind = "unknown-group",
                                      .by = group,
                                      .text = "it has entry points in this group, and nobody is known who loads them"},
                           .least = Verdict::kWatch});
      }
    }
  }
  return roots;
}

std::vector<Root> system_roots(const Nodes& nodes) {
  std::vector<Root> roots;
  for (std::uint32_t node = 0; node < nodes.count(); ++node) {
    if (nodes.all()[node].source == "dpkg")
      roots.push_back(
          {.node = node,
           .reason = {.kind = "system", .by = "", .text = "a package of the operating system stays with it"}});
  }
  return roots;
}

}  // namespace varve::prune
