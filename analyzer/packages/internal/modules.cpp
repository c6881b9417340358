#include "analyzer/packages/internal/modules.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "analyzer/packages/internal/interpreters.h"
#include "analyzer/python/name.h"
#include "core/base/bytes.h"
#include "core/base/text/image_path.h"

namespace varve::packages::internal {
namespace {

constexpr std::uint64_t kMaxInitBytes = 8 * 1024;  // of an __init__ that may declare a namespace
constexpr int kMaxModuleDepth = 200;               // of packages in packages

// A package or module of one site folder.
struct Module {
  std::map<std::string, std::unique_ptr<Module>, std::less<>> children;
  std::uint32_t own_set = 0;  // of its file, or its __init__
  std::uint32_t all_set = 0;  // of everything in it
  bool mixed = false;         // not all of it has the same owners
  bool has_init = false;
  std::optional<FileId> init;  // its __init__.py
  bool is_namespace = false;   // its __init__ says so
};

using ModuleMap = std::map<std::string, std::set<std::uint32_t>>;

bool declares_namespace(std::string_view init) {
  return init.find("declare_namespace") != std::string_view::npos || init.find("extend_path") != std::string_view::npos;
}

class ModuleFinder {
 public:
  ModuleFinder(const index::FileSource& source, const FileTable& table, const Records& records,
               const std::vector<Installed>& installed, Ownership& ownership, Inventory& inventory)
      : source_(source),
        table_(table),
        records_(records),
        installed_(installed),
        ownership_(ownership),
        inventory_(inventory) {}

  void find() {
    collect_sites();
    for (const auto& site : sites_) build(site);
    find_namespaces();
    map_interpreters();
    add_editable();
    add_declared();
    for (auto& [name, owners] : modules_) inventory_.modules[name].assign(owners.begin(), owners.end());
    for (std::size_t i = 0; i < installed_.size(); ++i) tell_names(std::uint32_t(i));
  }

 private:
  const Record& record_of(std::size_t i) const { return records_.records[installed_[i].record]; }

  void collect_sites() {
    std::set<std::string> known;
    const auto add = [&](const std::string& site) {
      if (known.insert(site).second) sites_.push_back(site);
    };
    for (const auto& interpreter : inventory_.interpreters) {
      for (const auto& site : interpreter.sites) add(site);
    }
    for (std::size_t i = 0; i < installed_.size(); ++i) {
      if (is_python(record_of(i).kind) && inventory_.distributions[i].vendored_by.empty()) add(record_of(i).site);
    }
  }

  // "libnvperf_host.so" in a folder of libraries: Python could import it by its name, and nobody means it so.
  static bool is_plain_library(const python::ModuleFile& module, std::string_view name) {
    return module.extension && name.starts_with("lib") && std::ranges::count(name, '.') == 1;
  }

  void build(const std::string& site) {
    auto& root = roots_[site];
    const auto [first, end] = table_.below(site);
    const auto prefix = site.empty() ? 0 : site.size() + 1;
    for (auto id = first; id < end; ++id) {
      if (!table_.is_content(id)) continue;
      const auto module = python::module_of_file(table_.path(id).substr(prefix));
      if (module && !is_plain_library(*module, name_of(table_.path(id)))) add(root, *module, id);
    }
  }

  void add(Module& root, const python::ModuleFile& file, FileId id) {
    const auto set = ownership_.set_of(id);
    auto* at = &root;
    std::string_view rest = file.dotted;
    for (int depth = 0; !rest.empty() && depth < kMaxModuleDepth; ++depth) {
      const auto name = rest.substr(0, rest.find('.'));
      rest.remove_prefix(std::min(name.size() + 1, rest.size()));
      auto found = at->children.find(name);
      if (found == at->children.end())
        found = at->children.emplace(std::string(name), std::make_unique<Module>()).first;
      at = found->second.get();
      if (set == 0) continue;  // nobody's files change nothing of whose package it is
      if (at->all_set != 0 && at->all_set != set) at->mixed = true;
      at->all_set = ownership_.unite(at->all_set, set);
    }
    at->own_set = ownership_.unite(at->own_set, set);
    at->has_init = at->has_init || file.package;
    if (file.package && table_.path(id).ends_with("/__init__.py")) at->init = id;
  }

  void find_namespaces() {
    for (std::size_t i = 0; i < installed_.size(); ++i) {
      const auto& record = record_of(i);
      declared_.insert(record.namespaces.begin(), record.namespaces.end());
      if (record.metadata && record.metadata->import_namespaces) {
        for (const auto& one : *record.metadata->import_namespaces) declared_.insert(one.name);
      }
    }
    for (const auto& [path, file] : records_.path_files)
      declared_.insert(file.namespaces.begin(), file.namespaces.end());
    std::map<std::string, std::vector<Module*>> unread;
    for (auto& [site, root] : roots_) {
      for (auto& [name, module] : root.children) ask_for_inits(*module, name, unread);
    }
    for (auto& [site, root] : roots_) {
      for (auto& [name, module] : root.children)
        module->is_namespace = module->is_namespace || holds_others_files(*module);
    }
    std::vector<std::string> paths;
    for (const auto& [path, modules] : unread) paths.push_back(path);
    source_.read(paths, kMaxInitBytes, [&](const std::string& path, std::optional<Bytes> content) {
      if (!content || !declares_namespace(as_text(*content))) return;
      for (auto* module : unread.at(path)) module->is_namespace = true;
    });
  }

  // Only where distributions meet, or where a name says that it is a part: "google-cloud-storage" of google and
  // google.cloud.
  void ask_for_inits(Module& module, const std::string& name, std::map<std::string, std::vector<Module*>>& unread,
                     int depth = 0) {
    if (declared_.contains(name)) module.is_namespace = true;
    const bool may_be = module.mixed || is_named_as_part(module, name);
    if (!may_be && !module.is_namespace) return;
    if (may_be && module.init && depth < 8) unread[std::string(table_.path(*module.init))].push_back(&module);
    for (auto& [child_name, child] : module.children) ask_for_inits(*child, name + '.' + child_name, unread, depth + 1);
  }

  // An empty __init__ of one distribution, and libraries of others beside it: "nvidia" of the CUDA wheels.
  bool holds_others_files(const Module& module) const {
    if (!module.init || module.own_set == 0 || table_.file(*module.init).size > 0) return false;
    const auto [first, end] = table_.below(parent_of(table_.path(*module.init)));
    for (auto id = first; id < end; ++id) {
      const auto set = ownership_.set_of(id);
      if (set != 0 && set != module.own_set && table_.is_content(id)) return true;
    }
    return false;
  }

  bool is_named_as_part(const Module& module, const std::string& name) const {
    if (!module.init) return module.all_set != 0 && module.own_set == 0;  // PEP 420: its parts may have such files
    if (table_.file(*module.init).size > kMaxInitBytes) return false;
    const auto prefix = python::normalize_name(name) + '-';
    return std::ranges::any_of(ownership_.set(module.all_set), [&](auto owner) {
      return inventory_.distributions[owner].normalized.starts_with(prefix);
    });
  }

  static void put(ModuleMap& map, const std::string& name, const std::vector<std::uint32_t>& owners) {
    map[name].insert(owners.begin(), owners.end());
  }

  // `inherited`: the set that a longer name means as long as nothing is said of it.
  void emit(const Module& module, const std::string& name, std::uint32_t inherited, ModuleMap& map) const {
    if (module.all_set == 0) return;
    auto now = inherited;
    const bool is_namespace =
        module.is_namespace || (!module.has_init && !module.children.empty() && module.own_set == 0);
    if (!is_namespace) {
      const auto set = module.own_set != 0 ? module.own_set : module.all_set;
      if (set != inherited) put(map, name, ownership_.set(set));
      now = set;
    }
    if (!module.mixed && now == module.all_set) return;
    for (const auto& [child_name, child] : module.children) emit(*child, name + '.' + child_name, now, map);
  }

  // Of one interpreter the first site that has a name wins; several interpreters have each their own.
  void map_interpreters() {
    std::set<std::string> on_path;
    for (const auto& interpreter : inventory_.interpreters) {
      ModuleMap seen;
      for (const auto& site : interpreter.sites) {
        on_path.insert(site);
        ModuleMap here;
        for (const auto& [name, module] : roots_.at(site).children) emit(*module, name, 0, here);
        for (auto& [name, owners] : here) seen.try_emplace(name, std::move(owners));
      }
      for (auto& [name, owners] : seen) modules_[name].merge(owners);
    }
    ModuleMap others;
    for (const auto& site : sites_) {
      if (on_path.contains(site)) continue;
      for (const auto& [name, module] : roots_.at(site).children) emit(*module, name, 0, others);
    }
    for (auto& [name, owners] : others) modules_.try_emplace(name, std::move(owners));
  }

  void add_editable() {
    for (std::size_t i = 0; i < installed_.size(); ++i) {
      for (const auto& [module, path] : record_of(i).editable_modules) modules_[module].insert(std::uint32_t(i));
    }
  }

  // PEP 794: what the metadata says counts before what is found.
  void add_declared() {
    for (std::size_t i = 0; i < installed_.size(); ++i) {
      const auto& metadata = record_of(i).metadata;
      if (!metadata || !metadata->import_names || !inventory_.distributions[i].vendored_by.empty()) continue;
      for (auto& [name, owners] : modules_) owners.erase(std::uint32_t(i));
      for (const auto& one : *metadata->import_names) modules_[one.name].insert(std::uint32_t(i));
    }
    std::erase_if(modules_, [](const auto& entry) { return entry.second.empty(); });
  }

  void tell_names(std::uint32_t number) {
    auto& distribution = inventory_.distributions[number];
    if (!distribution.vendored_by.empty()) return;
    tell_top_level(number, distribution);
    const auto& metadata = record_of(number).metadata;
    if (metadata && metadata->import_names) {
      for (const auto& one : *metadata->import_names) {
        if (!one.is_private && !one.name.empty()) distribution.imports.push_back(one.name);
      }
      return;
    }
    if (owned_names_.empty()) {
      for (const auto& [name, owners] : modules_) {
        for (const auto owner : owners) owned_names_[owner].push_back(name);
      }
    }
    const auto& names = owned_names_[number];
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto& name = names[i];
      const auto longer = std::upper_bound(names.begin(), names.end(), name + '.');
      const bool has_longer = longer != names.end() && longer->starts_with(name + '.');
      const bool is_shared = modules_.at(name).size() > 1;
      if (is_shared && has_longer) continue;  // others are in it too; its own is below
      // In order: all names below the last one kept follow it at once.
      const bool has_shorter = !distribution.imports.empty() && name.starts_with(distribution.imports.back() + '.');
      if (!has_shorter) distribution.imports.push_back(name);
    }
  }

  void tell_top_level(std::uint32_t number, Distribution& distribution) const {
    const auto& record = record_of(number);
    if (!is_python(record.kind)) return;
    std::set<std::string> names(record.declared_top_level.begin(), record.declared_top_level.end());
    if (names.empty()) {
      const auto rules = python_of(record);
      if (rules == 0 || rules >= 312) {
        for (const auto& name : record.sources_312) {
          if (name.find('.') == std::string::npos) names.insert(name);
        }
      } else if (rules == 311) {
        names = record.sources_311;
        names.erase("..");
      }
    }
    distribution.top_level.assign(names.begin(), names.end());
  }

  // 311 of the interpreter that sees the record's folder; 0 = unknown.
  int python_of(const Record& record) const {
    for (const auto& interpreter : inventory_.interpreters) {
      if (std::ranges::find(interpreter.sites, record.site) != interpreter.sites.end())
        return minor_number(interpreter.version);
    }
    return 0;
  }

  const index::FileSource& source_;
  const FileTable& table_;
  const Records& records_;
  const std::vector<Installed>& installed_;
  Ownership& ownership_;
  Inventory& inventory_;
  std::vector<std::string> sites_;
  std::map<std::string, Module> roots_;
  std::set<std::string> declared_;
  ModuleMap modules_;
  std::map<std::uint32_t, std::vector<std::string>> owned_names_;  // ascending
};

}  // namespace

void find_modules(const index::FileSource& source, const FileTable& table, const Records& records,
                  const std::vector<Installed>& installed, Ownership& ownership, Inventory& inventory) {
  ModuleFinder(source, table, records, installed, ownership, inventory).find();
}

}  // namespace varve::packages::internal
