// How it works: the text of each module is read once and left as the names that it imports, each with whether reading
// the module reaches it (`loaded`). Then, per distribution, the modules that importing it loads are found by walking
// `loaded` names from its own top modules, through other distributions too: an edge to each of these. Where a module of
// another distribution on the way has that edge already, the way through it says the same and is left out.
#include "analyzer/prune/static_imports.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "analyzer/notebooks/findings.h"
#include "analyzer/python/module_file.h"
#include "core/base/text/image_path.h"
#include "core/base/text/units.h"

namespace varve::prune {
namespace {

constexpr std::uint64_t kMaxModuleBytes = 2 << 20;  // larger ones are tables
constexpr std::size_t kMaxModules = 400'000;
constexpr std::uint64_t kMaxTextBytes = std::uint64_t(2) << 30;
constexpr std::size_t kMaxKnownNames = 1'000'000;  // whose owners are remembered
constexpr std::size_t kMaxLibraries = 100'000;

// Nobody who uses a library runs these.
bool is_test_path(std::string_view below) {
  constexpr std::array<std::string_view, 7> kFolders{"tests",    "test",      "_tests",     "benchmarks",
                                                     "examples", "_examples", "conftest.py"};
  while (!below.empty()) {
    const auto part = below.substr(0, below.find('/'));
    if (std::ranges::find(kFolders, part) != kFolders.end()) return true;
    below.remove_prefix(std::min(part.size() + 1, below.size()));
  }
  return false;
}

// Relative names made absolute: "..x" of the module a.b.c is a.x. "" for one that leads out.
std::string absolute_name(std::string_view name, std::string_view module, bool is_package) {
  if (!name.starts_with('.')) return std::string(name);
  if (!is_package) module = module.substr(0, module.rfind('.') == module.npos ? 0 : module.rfind('.'));
  name.remove_prefix(1);
  for (; name.starts_with('.'); name.remove_prefix(1)) {
    if (module.empty()) return "";
    module = module.substr(0, module.rfind('.') == module.npos ? 0 : module.rfind('.'));
  }
  if (module.empty()) return "";
  return name.empty() ? std::string(module) : fmt::format("{}.{}", module, name);
}

struct StaticModule {
  std::vector<std::uint32_t> owners;  // nodes, ascending, as all below
  std::uint32_t site = 0;
  std::string path;
  bool is_package = false;
  std::vector<std::uint32_t> loads;  // modules whose text runs when this one's does
  std::vector<std::uint32_t> needs;  // nodes that own what is imported then
  std::vector<std::uint32_t> names;  // nodes that own what the rest of its text names
};

class StaticImports {
 public:
  StaticImports(const index::FileSource& files, const Nodes& nodes, const Work& work, Graph& graph)
      : files_(files), nodes_(nodes), inventory_(nodes.inventory()), work_(work), graph_(graph) {}

  std::vector<std::string> add() {
    collect_sites();
    for (std::uint32_t site = 0; site < sites_.size(); ++site) collect_modules(site);
    read_modules();
    reach_.resize(nodes_.count());
    for (std::uint32_t node = 0; node < nodes_.count(); ++node) reach_[node] = reach_from(node);
    for (std::uint32_t node = 0; node < nodes_.count(); ++node) add_loaded(node);
    add_named();
    add_libraries();
    if (left_out_ > 0)
      unsure_.push_back(
          fmt::format("{} modules were not read for what they import: at most {} files and {} of text are", left_out_,
                      kMaxModules, human_bytes(kMaxTextBytes)));
    return std::move(unsure_);
  }

 private:
  // Who owns the importing module, and the node that it imports -> the first such module's number.
  using Reach = std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>;

  // In the order in which a Python looks for names, so that of two files of one name the first counts.
  void collect_sites() {
    std::set<std::string> known;
    const auto add = [&](const std::string& site) {
      if (!site.empty() && known.insert(site).second) sites_.push_back(site);
    };
    for (const auto& python : inventory_.interpreters) std::ranges::for_each(python.sites, add);
    for (const auto& one : inventory_.distributions) add(one.site);
    targets_.resize(sites_.size());
    for (const auto& site : sites_) {
      auto& row = together_.emplace_back();
      for (const auto& other : sites_) row.push_back(seen_together(inventory_, site, other));
    }
  }

  void collect_modules(std::uint32_t site) {
    const auto& entries = files_.tree().entries;
    const auto prefix = sites_[site] + '/';
    for (auto file = entries.lower_bound(prefix); file != entries.end() && file->first.starts_with(prefix); ++file) {
      const auto& [path, entry] = *file;
      if (entry.type != FileType::kRegular || !path.ends_with(".py")) continue;
      const auto below = std::string_view(path).substr(prefix.size());
      if (is_test_path(below) || entry.size > kMaxModuleBytes) continue;
      auto module = python::module_of_file(below);
      auto owners = nodes_.of_all(inventory_.owners_of_path(path));
      if (!module || owners.empty() || by_path_.contains(path)) continue;
      if (modules_.size() >= kMaxModules || text_bytes_ + entry.size > kMaxTextBytes) {
        ++left_out_;
        continue;
      }
      text_bytes_ += entry.size;
      const auto number = std::uint32_t(modules_.size());
      by_path_.emplace(path, number);
      by_name_.emplace(module->dotted, number);
      names_.push_back(std::move(module->dotted));
      modules_.push_back({.owners = std::move(owners),
                          .site = site,
                          .path = path,
                          .is_package = module->package,
                          .loads = {},
                          .needs = {},
                          .names = {}});
    }
  }

  void read_modules() {
    work_.progress.expect(text_bytes_);
    std::vector<std::string> paths;
    for (const auto& module : modules_) paths.push_back(module.path);
    files_.read(paths, kMaxModuleBytes, [&](const std::string& path, std::optional<Bytes> content) {
      if (content) read_module(by_path_.at(path), *content);
    });
  }

  void read_module(std::uint32_t number, const Bytes& content) {
    auto& module = modules_[number];
    std::set<std::uint32_t> loads, needs, names;
    const auto found = notebooks::read_module(as_text(content));
    for (const auto& library : found.libraries) {
      if (libraries_.size() < kMaxLibraries) libraries_.emplace(name_of(library), number);
    }
    for (const auto& import : found.imports) {
      const auto name = absolute_name(import.name, names_[number], module.is_package);
      if (name.empty()) continue;
      const auto targets = targets_of(name, module.site);
      const bool always = import.kind == notebooks::ImportKind::kImport || import.tried;
      if (!always || import.in_function) {
        names.insert(targets.begin(), targets.end());
        continue;
      }
      needs.insert(targets.begin(), targets.end());
      each_module(name, [&](std::uint32_t loaded) {
        if (together_[module.site][modules_[loaded].site]) loads.insert(loaded);
      });
    }
    for (const auto owner : module.owners) {
      needs.erase(owner);
      names.erase(owner);
    }
    module.loads.assign(loads.begin(), loads.end());
    module.needs.assign(needs.begin(), needs.end());
    module.names.assign(names.begin(), names.end());
    work_.add(content.size());
  }

  // Every module whose text runs when `name` is imported, from the outermost package inwards; "a.b" may be what
  // a/__init__.py calls b.
  template <typename Visit>
  void each_module(std::string_view name, Visit&& visit) const {
    for (std::size_t end = 0; end != name.npos;) {
      end = name.find('.', end + 1);
      if (const auto found = by_name_.find(std::string(name.substr(0, end))); found != by_name_.end())
        visit(found->second);
    }
  }

  // Whose a name is to a module of that site folder: nobody's who is seen by other Pythons only.
  std::vector<std::uint32_t> targets_of(const std::string& name, std::uint32_t site) {
    if (const auto known = targets_[site].find(name); known != targets_[site].end()) return known->second;
    auto owners = inventory_.modules.owners(name);
    std::erase_if(owners, [&](std::uint32_t owner) {
      return !seen_together(inventory_, inventory_.distributions[owner].site, sites_[site]);
    });
    auto targets = nodes_.of_all(owners);
    if (targets_[site].size() < kMaxKnownNames) targets_[site].emplace(name, targets);
    return targets;
  }

  Reach reach_from(std::uint32_t node) const {
    Reach reach;
    std::vector<std::uint32_t> queue;
    std::vector<bool> seen(modules_.size());
    const auto enter = [&](std::uint32_t module) {
      if (!seen[module]) queue.push_back(module);
      seen[module] = true;
    };
    for (const auto member : nodes_.all()[node].members) {
      for (const auto& import : inventory_.distributions[member].imports) {
        if (is_test_path(import)) continue;
        each_module(import, [&](std::uint32_t module) {
          if (std::ranges::binary_search(modules_[module].owners, node)) enter(module);
        });
      }
    }
    for (std::size_t head = 0; head < queue.size(); ++head) {
      const auto number = queue[head];
      const auto& module = modules_[number];
      for (const auto target : module.needs) {
        for (const auto owner : module.owners) reach.emplace(std::pair(owner, target), number);
      }
      std::ranges::for_each(module.loads, enter);
    }
    return reach;
  }

  void add_edge(std::uint32_t from, std::uint32_t to, bool soft, std::string text, EdgeKind kind = EdgeKind::kImports) {
    if (from == to || !added_.emplace(from, to).second) return;
    graph_.edges.push_back({.from = from, .to = to, .kind = kind, .soft = soft, .text = std::move(text)});
  }

  void add_loaded(std::uint32_t node) {
    for (const auto& [who, module] : reach_[node]) {
      const auto [owner, to] = who;
      if (owner == node) {
        add_edge(node, to, false, fmt::format("imports it in {}", modules_[module].path));
      } else if (!reach_[owner].contains(who)) {
        add_edge(node, to, false, fmt::format("imports {}, which imports it", names_[module]));
      }
    }
  }

  void add_named() {
    for (const auto& module : modules_) {
      for (const auto* named : {&module.needs, &module.names}) {
        for (const auto to : *named) {
          for (const auto from : module.owners)
            add_edge(from, to, true, fmt::format("may import it in {}", module.path));
        }
      }
    }
  }

  // Who owns a file of the name that ctypes is given.
  void add_libraries() {
    if (libraries_.empty()) return;
    for (const auto& [path, entry] : files_.tree().entries) {
      if (entry.type == FileType::kDirectory || path.find(".so") == path.npos) continue;
      const auto [first, end] = libraries_.equal_range(std::string(name_of(path)));
      for (auto wanted = first; wanted != end; ++wanted) {
        const auto& module = modules_[wanted->second];
        for (const auto to : nodes_.of_all(inventory_.owners_of_path(path))) {
          for (const auto from : module.owners)
            add_edge(from, to, true, fmt::format("may load {} in {}", path, module.path), EdgeKind::kElf);
        }
      }
    }
  }

  const index::FileSource& files_;
  const Nodes& nodes_;
  const packages::Inventory& inventory_;
  const Work& work_;
  Graph& graph_;
  std::vector<std::string> sites_;
  std::vector<StaticModule> modules_;
  std::vector<std::string> names_;  // dotted, by module
  std::unordered_map<std::string, std::uint32_t> by_path_, by_name_;
  std::vector<std::vector<bool>> together_;  // of two sites: some Python sees both
  std::vector<std::unordered_map<std::string, std::vector<std::uint32_t>>> targets_;  // by site
  std::multimap<std::string, std::uint32_t> libraries_;                               // name of a file -> module
  std::vector<Reach> reach_;                                                          // by node
  std::set<std::pair<std::uint32_t, std::uint32_t>> added_;
  std::uint64_t text_bytes_ = 0, left_out_ = 0;
  std::vector<std::string> unsure_;
};

}  // namespace

std::vector<std::string> add_static_imports(const index::FileSource& files, const Nodes& nodes, const Work& work,
                                            Graph& graph) {
  return StaticImports(files, nodes, work, graph).add();
}

}  // namespace varve::prune
