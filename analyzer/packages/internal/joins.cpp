#include "analyzer/packages/internal/joins.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "analyzer/python/name.h"
#include "analyzer/python/version.h"
#include "core/base/text/image_path.h"

namespace varve::packages::internal {
namespace {

bool is_below(std::string_view path, std::string_view folder) {
  return folder.empty() ? !path.empty()
                        : path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

// "python3-numpy" and "python-numpy" for numpy, "pytorch" for torch is left to the metadata.
bool is_package_of(std::string_view package, std::string_view normalized) {
  const auto name = python::normalize_name(package);
  return name == normalized || name == "python3-" + std::string(normalized) ||
         name == "python-" + std::string(normalized) || name == std::string(normalized) + "-base";
}

class Joiner {
 public:
  Joiner(Records& records, const FileTable& table, const std::vector<Interpreter>& interpreters)
      : all_(records),
        records_(records.records),
        table_(table),
        package_of_(records_.size()),
        holder_of_(records_.size()),
        left_out_(records_.size()) {
    for (const auto& interpreter : interpreters) {
      for (const auto& site : interpreter.sites) on_path_.insert(site);
    }
  }

  Joined join() {
    find_holders();
    leave_out_sources();
    mark_editable();
    find_vendored();
    find_stale();
    join_packages();
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (!left_out_[i] && records_[i].readable) add(i);
    }
    std::ranges::sort(out_.installed, {}, [&](const Installed& one) {
      return std::tie(one.distribution.normalized, one.distribution.record, one.distribution.name);
    });
    return std::move(out_);
  }

 private:
  std::optional<FileId> main_file(const Record& record) const {
    switch (record.kind) {
      case RecordKind::kDistInfo:
        return table_.find(record.path + "/METADATA");
      case RecordKind::kEggInfoFolder:
      case RecordKind::kEgg:
        return table_.find(record.path + "/PKG-INFO");
      default:
        return table_.find(record.path);
    }
  }

  // Which other records list each Python record's own file.
  void find_holders() {
    std::unordered_map<FileId, std::size_t> main_files;
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (!is_python(records_[i].kind)) continue;
      if (const auto file = main_file(records_[i])) main_files.emplace(*file, i);
    }
    for (std::size_t holder = 0; holder < records_.size(); ++holder) {
      for (const auto file : records_[holder].claims) {
        const auto found = main_files.find(file);
        if (found != main_files.end() && found->second != holder) holder_of_[found->second].push_back(holder);
      }
    }
  }

  bool is_on_path(const Record& record) const {
    return on_path_.contains(record.site) ||
           (record.kind == RecordKind::kEgg && on_path_.contains(std::string(parent_of(record.site))));
  }

  // An egg-info in a source tree that nothing puts on sys.path, or beside an editable dist-info of the same version.
  void leave_out_sources() {
    std::set<std::pair<std::string, std::string>> editable;
    for (const auto& record : records_) {
      if (record.direct_url && record.direct_url->editable) editable.emplace(record.normalized, record.version);
    }
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const auto& record = records_[i];
      if (record.kind != RecordKind::kEggInfoFolder || record.has_list || !holder_of_[i].empty()) continue;
      const bool is_source = table_.find(join_path(record.site, "setup.py")) ||
                             table_.find(join_path(record.site, "pyproject.toml")) ||
                             table_.find(join_path(parent_of(record.site), "pyproject.toml")) ||
                             table_.find(join_path(parent_of(record.site), "setup.py"));
      left_out_[i] =
          (is_source && !on_path_.contains(record.site)) || editable.contains({record.normalized, record.version});
    }
  }

  void mark_editable() {
    std::set<std::pair<std::string, std::string>> linked;  // folder, name
    for (const auto& [path, folder] : all_.egg_links) {
      auto name = name_of(path);
      name.remove_suffix(std::string_view(".egg-link").size());
      if (const auto real = table_.real_folder(std::string(without_leading_slashes(folder))))
        linked.emplace(*real, python::normalize_name(name));
    }
    for (auto& record : records_) {
      record.editable =
          (record.direct_url && record.direct_url->editable) || linked.contains({record.site, record.normalized});
      for (const auto& path : record.finder_modules) {
        const auto finder = all_.finders.find(path);
        if (finder == all_.finders.end()) continue;
        record.editable = true;
        for (const auto& [module, target] : finder->second.mapping)
          record.editable_modules.emplace(module, std::string(without_leading_slashes(target)));
      }
    }
  }

  // A record inside another distribution: not where Python looks for any, and listed by the other, or below one of its
  // folders.
  void find_vendored() {
    vendored_by_.resize(records_.size());
    for (std::size_t i = 0; i < records_.size(); ++i) {
      for (const auto file : records_[i].claims) {
        if (name_of(table_.path(file)) == "__init__.py") lister_of_.emplace(file, i);
      }
    }
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const auto& record = records_[i];
      if (!is_python(record.kind) || is_on_path(record)) continue;
      for (const auto holder : holder_of_[i]) {
        const auto& outer = records_[holder];
        if (outer.kind == RecordKind::kConda || outer.kind == RecordKind::kDpkg) {
          // Where no interpreter is known a package's own metadata is off the path too; vendored ones lie below a site
          // folder.
          if (!lies_in_site(record.site)) continue;
        } else if (outer.site == record.site) {
          continue;
        }
        vendored_by_[i] = holder;
      }
      if (!vendored_by_[i]) vendored_by_[i] = owner_of_folder(record.site);
    }
  }

  bool lies_in_site(std::string_view folder) const {
    return std::ranges::any_of(on_path_,
                               [&](const std::string& site) { return !site.empty() && is_below(folder, site); });
  }

  // The Python record whose list has a file beside a folder that lies below its site.
  std::optional<std::size_t> owner_of_folder(std::string_view folder) const {
    if (!lies_in_site(folder)) return std::nullopt;
    for (auto at = folder; !at.empty(); at = parent_of(at)) {
      const auto init = table_.find(join_path(at, "__init__.py"));
      if (!init) continue;
      if (const auto lister = lister_of_.find(*init); lister != lister_of_.end()) return lister->second;
    }
    return std::nullopt;
  }

  // Of several records of one name in one folder the one that was written last is true: of the upper layer, then what
  // fits its list, then the newer.
  void find_stale() {
    std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> same;
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const auto& record = records_[i];
      if (record.kind == RecordKind::kDpkg || !record.readable || left_out_[i] || vendored_by_[i]) continue;
      same[{(record.kind == RecordKind::kConda ? "conda:" : "") + record.normalized,
            record.kind == RecordKind::kEgg ? std::string(parent_of(record.site)) : record.site}]
          .push_back(i);
    }
    for (const auto& [key, numbers] : same) {
      if (numbers.size() < 2) continue;
      auto truth = numbers.front();
      for (const auto number : numbers) {
        if (is_truer(records_[number], records_[truth])) truth = number;
      }
      for (const auto number : numbers) {
        if (number == truth) continue;
        left_out_[number] = true;
        out_.stale.push_back({.record = number, .truth = truth});
        all_.problems.push_back(fmt::format("{:.300}: stale: {} {} is what is installed there", records_[number].path,
                                            records_[truth].name, records_[truth].version));
      }
    }
  }

  static bool is_truer(const Record& one, const Record& other) {
    if (one.layer != other.layer) return one.layer > other.layer;
    const auto wrong = [](const Record& record) { return record.missing + record.changed; };
    if (wrong(one) != wrong(other)) return wrong(one) < wrong(other);
    const auto a = python::Version::parse(one.version);
    const auto b = python::Version::parse(other.version);
    if (a && b && *a != *b) return *a > *b;
    return one.path > other.path;
  }

  // A package with one Python distribution in it, or with several of which one has its name, is one with that.
  void join_packages() {
    std::map<std::size_t, std::vector<std::size_t>> inner;
    for (std::size_t i = 0; i < records_.size(); ++i) {
      if (left_out_[i] || vendored_by_[i] || !is_python(records_[i].kind) || !records_[i].readable) continue;
      for (const auto holder : holder_of_[i]) {
        if (!is_python(records_[holder].kind) && !left_out_[holder]) inner[holder].push_back(i);
      }
    }
    for (const auto& [package, records] : inner) {
      auto chosen = records.front();
      bool found = records.size() == 1;
      for (const auto number : records) {
        if (records.size() > 1 && is_package_of(records_[package].name, records_[number].normalized)) {
          chosen = number;
          found = true;
        }
        source_of_[number] = records_[package].kind == RecordKind::kConda ? Source::kConda : Source::kDpkg;
      }
      if (!found || package_of_[chosen]) continue;
      package_of_[chosen] = package;
      left_out_[package] = true;
      joined_into_[package] = chosen;
    }
  }

  Source source_of(std::size_t number) const {
    if (const auto found = source_of_.find(number); found != source_of_.end()) return found->second;
    switch (records_[number].kind) {
      case RecordKind::kConda:
        return Source::kConda;
      case RecordKind::kDpkg:
        return Source::kDpkg;
      case RecordKind::kDistInfo:
        return Source::kPip;
      default:
        return Source::kEgg;
    }
  }

  void add(std::size_t number) {
    const auto& record = records_[number];
    auto& installed = out_.installed.emplace_back();
    auto& made = installed.distribution;
    installed.record = number;
    made.name = record.name;
    made.normalized = record.normalized;
    made.version = record.version;
    made.source = source_of(number);
    made.record = record.path;
    made.site = record.kind == RecordKind::kConda ? "" : record.site;
    made.installer = record.installer;
    made.requested = record.requested;
    made.editable = record.editable;
    made.missing_files = record.missing;
    made.changed_files = record.changed;
    if (record.metadata) made.summary = record.metadata->summary;
    if (vendored_by_[number]) {
      made.vendored_by = outermost(*vendored_by_[number]);
      return;  // its files are the outer one's
    }
    installed.claims = record.claims;
    if (const auto package = package_of_[number]) {
      const auto& outer = records_[*package];
      installed.package = package;
      if (outer.name != record.name) made.package = outer.name;
      made.package_version = outer.version;
      if (made.installer.empty() || outer.kind == RecordKind::kConda) made.installer = outer.installer;
      made.requested = made.requested || outer.requested;
      std::vector<FileId> both;
      std::ranges::set_union(record.claims, outer.claims, std::back_inserter(both));
      installed.claims = std::move(both);
    }
    add_weak_claims(record, installed);
  }

  std::string outermost(std::size_t number) const {
    for (int level = 0; level < 10; ++level) {
      if (const auto joined = joined_into_.find(number); joined != joined_into_.end()) {
        number = joined->second;
      } else if (vendored_by_[number] && *vendored_by_[number] != number) {
        number = *vendored_by_[number];
      } else {
        break;
      }
    }
    return records_[number].normalized;
  }

  // Where no list tells: what the names tell.
  void add_weak_claims(const Record& record, Installed& installed) const {
    auto& weak = installed.weak_claims;
    if (is_python(record.kind) && !record.has_list) {
      auto names = record.declared_top_level;
      if (names.empty()) {
        auto name = record.normalized;
        std::ranges::replace(name, '-', '_');
        names.push_back(std::move(name));
      }
      for (const auto& name : names) claim_module(record.site, name, weak);
    }
    for (const auto& [module, target] : record.editable_modules) claim_tree(target, weak);
    if (record.editable && record.has_list) {
      for (const auto& path : record.path_files) claim_added_folders(path, record, weak);
    }
    std::ranges::sort(weak);
    weak.erase(std::unique(weak.begin(), weak.end()), weak.end());
  }

  void claim_tree(std::string_view path, std::vector<FileId>& weak) const {
    const auto id = table_.resolve(path, true);
    if (!id) return;
    if (!table_.is_folder(*id)) return weak.push_back(*id);
    const auto [first, end] = table_.below(table_.path(*id));
    for (auto file = first; file < end; ++file) {
      if (table_.is_content(file)) weak.push_back(file);
    }
  }

  // "a.b" of a namespace is the folder a/b.
  void claim_module(std::string_view site, std::string name, std::vector<FileId>& weak) const {
    std::ranges::replace(name, '.', '/');
    const auto path = join_path(site, name);
    claim_tree(path, weak);
    const auto folder = parent_of(path);
    const auto stem = std::string(name_of(name)) + '.';
    table_.children(folder, [&](FileId id, std::string_view child) {
      if (!child.starts_with(stem) || table_.is_folder(id)) return;
      if (const auto module = python::module_of_file(child); module && module->dotted + '.' == stem) weak.push_back(id);
    });
  }

  // Importable things of the folders that a .pth file adds.
  void claim_added_folders(const std::string& path, const Record& record, std::vector<FileId>& weak) const {
    const auto file = all_.path_files.find(path);
    if (file == all_.path_files.end()) return;
    for (const auto& added : file->second.paths) {
      const auto folder = python::resolve_path(record.site, added);
      const auto real = folder ? table_.real_folder(*folder) : std::nullopt;
      if (!real) continue;
      if (!record.declared_top_level.empty()) {
        for (const auto& name : record.declared_top_level) claim_module(*real, name, weak);
        continue;
      }
      std::vector<std::string> names;
      table_.children(*real, [&](FileId id, std::string_view child) {
        if (table_.is_folder(id) ? table_.find(join_path(table_.path(id), "__init__.py")).has_value()
                                 : python::module_of_file(child).has_value())
          names.emplace_back(child.substr(0, child.find('.')));
      });
      for (const auto& name : names) claim_module(*real, name, weak);
    }
  }

  Records& all_;
  std::vector<Record>& records_;
  const FileTable& table_;
  std::set<std::string> on_path_;
  std::vector<std::optional<std::size_t>> package_of_;
  std::vector<std::vector<std::size_t>> holder_of_;
  std::vector<bool> left_out_;
  std::vector<std::optional<std::size_t>> vendored_by_;
  std::unordered_map<FileId, std::size_t> lister_of_;  // of __init__.py files: the first record that lists each
  std::map<std::size_t, Source> source_of_;
  std::map<std::size_t, std::size_t> joined_into_;
  Joined out_;
};

}  // namespace

Joined join_records(Records& records, const FileTable& table, const std::vector<Interpreter>& interpreters) {
  return Joiner(records, table, interpreters).join();
}

}  // namespace varve::packages::internal
