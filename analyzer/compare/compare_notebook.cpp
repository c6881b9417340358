#include <algorithm>
#include <set>
#include <utility>

#include "analyzer/compare/internal/parts.h"
#include "analyzer/python/name.h"
#include "analyzer/python/stdlib_names.h"

namespace varve::compare {
namespace {

using notebooks::Import;
using packages::Distribution;
using packages::Inventory;

// What one image has to say of the names that a notebook uses.
class Provider {
 public:
  explicit Provider(const Side& side) : side_(side) {
    const auto& distributions = side.inventory.distributions;
    for (std::uint32_t i = 0; i < distributions.size(); ++i) {
      if (distributions[i].vendored_by.empty() && is_python(distributions[i]))
        by_name_.try_emplace(distributions[i].normalized, i);
    }
  }

  bool is_stdlib(std::string_view module) const { return python::is_stdlib(module, version()); }
  std::string version() const {
    return side_.inventory.interpreters.empty() ? "" : side_.inventory.interpreters.front().version;
  }

  std::set<std::string> owners(std::string_view module) const {
    std::set<std::string> names;
    for (const auto owner : side_.inventory.modules.owners(module))
      names.insert(side_.inventory.distributions[owner].normalized);
    return names;
  }
  std::string described(const std::string& normalized) const {
    const auto found = by_name_.find(normalized);
    return found == by_name_.end() ? normalized
                                   : normalized + " " + side_.inventory.distributions[found->second].version;
  }
  bool has(const std::string& normalized) const { return by_name_.contains(normalized); }

  // Something can be imported by it: also a namespace that several distributions fill.
  bool has_module(std::string_view module) const { return side_.inventory.modules.has(module); }
  // A folder of modules and nothing else, whoever fills it: what is imported from it is a module.
  bool is_namespace(std::string_view module) const {
    const auto& modules = side_.inventory.modules;
    if (!modules.has(module)) return false;
    for (auto name = module;; name = name.substr(0, name.rfind('.'))) {
      if (modules.contains(name)) return false;
      if (name.find('.') == name.npos) return true;
    }
  }

  // There is a file or folder for it where Python looks.
  bool has_module_file(std::string_view dotted) const {
    std::string inside(dotted);
    std::ranges::replace(inside, '.', '/');
    const auto& entries = side_.tree.entries;
    for (const auto& interpreter : side_.inventory.interpreters) {
      for (const auto& site : interpreter.sites) {
        const auto base = (site.starts_with("/") ? site.substr(1) : site) + "/" + inside;
        if (entries.contains(base) || entries.contains(base + ".py")) return true;
        // "name.cpython-311-x86_64-linux-gnu.so"
        for (auto at = entries.lower_bound(base + "."); at != entries.end() && at->first.starts_with(base + ".");
             ++at) {
          if (at->first.ends_with(".so") && at->first.find('/', base.size()) == std::string::npos) return true;
        }
      }
    }
    return false;
  }

  // Those and all that they need, as far as it is there.
  std::set<std::string> closure(const std::set<std::string>& roots) const {
    std::set<std::string> reached;
    std::vector<std::string> open(roots.begin(), roots.end());
    while (!open.empty()) {
      const auto name = std::move(open.back());
      open.pop_back();
      const auto found = by_name_.find(name);
      if (found == by_name_.end() || !reached.insert(name).second) continue;
      for (const auto& need : side_.inventory.distributions[found->second].needs) {
        if (need.applies) open.push_back(python::normalize_name(need.requirement.name));
      }
    }
    return reached;
  }

 private:
  const Side& side_;
  std::map<std::string, std::uint32_t> by_name_;
};

class NotebookComparer {
 public:
  NotebookComparer(const Side& before, const Side& after, const Comparison& comparison)
      : before_(before), after_(after), comparison_(comparison) {}

  NotebookComparison compare(const notebooks::ScanResult& scan) {
    std::set<std::string_view> read;
    for (const auto& file : scan.files) read.insert(file.path);
    for (const auto& error : scan.errors)
      (read.contains(error.path) ? result_.warnings : result_.errors).push_back(error.path + ": " + error.what);
    for (const auto& file : scan.files) {
      of_file_.clear();
      for (const auto& import : file.imports) judge(import, file.path);
    }
    count_files();
    sort_packages();
    return std::move(result_);
  }

 private:
  void judge(const Import& import, const std::string& path) {
    if (import.local || import.unknown_name || import.written_file || import.module.empty()) return;
    const bool of_namespace = before_.is_namespace(import.module) || after_.is_namespace(import.module);
    const auto& module = of_namespace ? import.name : import.module;
    if (!of_file_.insert(module).second || ++files_[module] > 1) return;
    const bool stdlib_before = before_.is_stdlib(module);
    const bool stdlib_after = after_.is_stdlib(module);
    const auto old = stdlib_before ? std::set<std::string>() : before_.owners(module);
    const auto now = stdlib_after ? std::set<std::string>() : after_.owners(module);
    const bool gave = stdlib_before || !old.empty() || before_.has_module(module);
    const bool gives = stdlib_after || !now.empty() || after_.has_module(module);
    const auto note = [&](std::vector<BrokenImport>& list, std::string why) {
      list.push_back({.name = module,
                      .kind = std::string(notebooks::import_kind_name(import.kind)),
                      .path = path,
                      .cell = import.cell,
                      .line = import.line,
                      .why = std::move(why)});
    };
    direct_before_.insert(old.begin(), old.end());
    direct_after_.insert(now.begin(), now.end());
    if (gave && !gives) {
      note(result_.lost, stdlib_before ? fmt::format("belonged to Python {}; Python {} has it no longer",
                                                     before_.version(), after_.version())
                                       : why_lost(old));
    } else if (!gave && !gives) {
      note(result_.never, "neither image has it");
    } else if (!gave) {
      note(result_.gained, stdlib_after  ? "of Python " + after_.version()
                           : now.empty() ? "of several packages"
                                         : "of " + after_.described(*now.begin()));
    } else if (!old.empty() && !now.empty() && before_.has_module_file(module) && !after_.has_module_file(module)) {
      note(result_.lost, fmt::format("{} had a file for it, {} has none", before_.described(*old.begin()),
                                     after_.described(*now.begin())));
    }
  }

  std::string why_lost(const std::set<std::string>& owners) const {
    std::string text = owners.empty() ? "belonged to several packages, which are gone" : "";
    for (const auto& owner : owners) {
      if (!text.empty()) text += "; ";
      text += "belonged to " + before_.described(owner) +
              (after_.has(owner) ? ", and " + after_.described(owner) + " does not have it" : ", which is gone");
    }
    return text;
  }

  void count_files() {
    for (auto* list : {&result_.lost, &result_.never, &result_.gained})
      for (auto& import : *list) import.files = files_.at(import.name);
  }

  void sort_packages() {
    auto direct = direct_before_;
    direct.insert(direct_after_.begin(), direct_after_.end());
    auto needed = before_.closure(direct_before_);
    needed.merge(after_.closure(direct_after_));
    std::set<std::string> changed;
    for (const auto& package : comparison_.packages.changed) {
      if (!package.python) continue;
      if (direct.contains(package.name)) {
        result_.direct.push_back(package);
      } else if (needed.contains(package.name)) {
        result_.transitive.push_back(package);
      } else {
        continue;
      }
      changed.insert(package.name);
    }
    for (const auto& name : needed) {
      if (!changed.contains(name)) ++(direct.contains(name) ? result_.unchanged_direct : result_.unchanged_transitive);
    }
  }

  const Provider before_, after_;
  const Comparison& comparison_;
  std::set<std::string> of_file_;               // names judged, of the file at hand
  std::map<std::string, std::uint64_t> files_;  // that import the name
  std::set<std::string> direct_before_, direct_after_;
  NotebookComparison result_;
};

}  // namespace

NotebookComparison compare_for_notebook(const notebooks::ScanResult& scan, const Side& before, const Side& after,
                                        const Comparison& comparison) {
  return NotebookComparer(before, after, comparison).compare(scan);
}

}  // namespace varve::compare
