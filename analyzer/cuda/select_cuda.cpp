#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analyzer/cuda/internal/pattern_set.h"
#include "analyzer/cuda/rules.h"
#include "core/base/errors.h"
#include "core/base/text/image_path.h"

namespace varve::cuda {
namespace {

using index::FlatEntry;
using internal::PatternSet;

// "12" of "libnvrtc.so.12.4.127"; "" if the name has no version.
std::string major_of(std::string_view name) {
  const auto so = name.find(".so.");
  if (so == std::string_view::npos) return {};
  const auto rest = name.substr(so + 4);
  return std::string(rest.substr(0, rest.find_first_not_of("0123456789")));
}

std::string with_major(std::string_view pattern, const std::string& major) {
  std::string text(pattern);
  constexpr std::string_view kToken = "$MAJOR";
  if (const auto at = text.find(kToken); at != std::string::npos)
    text.replace(at, kToken.size(), major.empty() ? "*" : major);
  return text;
}

// Patterns that take a folder with all that is in it. To be asked in the order of the tree.
class FolderRules {
 public:
  FolderRules(std::string_view kind, const std::vector<std::string>& patterns)
      : kind_(kind), patterns_(patterns, PatternSet::Slashless::kPath) {}

  struct Taken {
    std::string rule;
    bool by_folder = false;  // as what is in a folder that was taken
  };
  std::optional<Taken> find(std::string_view path, const FlatEntry& entry) {
    if (path.empty()) return std::nullopt;
    Taken taken;
    if (const auto above = folders_.find(parent_of(path)); above != folders_.end())
      taken = {.rule = above->second, .by_folder = true};
    else if (const auto* pattern = patterns_.match(path))
      taken.rule = kind_ + *pattern;
    else
      return std::nullopt;
    if (entry.type == FileType::kDirectory) folders_.emplace(path, taken.rule);
    return taken;
  }

 private:
  const std::string kind_;
  const PatternSet patterns_;
  std::unordered_map<std::string_view, std::string> folders_;  // with the rule that took them
};

// What a file itself says: R1 and R3.
class CudaSigns {
 public:
  explicit CudaSigns(const std::vector<std::string>& names) : names_(names, PatternSet::Slashless::kBaseName, true) {}

  bool in_name(std::string_view path, const FlatEntry& entry) const {
    return entry.type != FileType::kDirectory && names_.match(path) != nullptr;
  }
  // The rule that takes the file; "" if none does.
  std::string rule_of(std::string_view path, const FlatEntry& entry) {
    if (entry.type == FileType::kDirectory) return {};
    if (const auto* pattern = names_.match(path)) return "R1 " + *pattern;
    if (entry.elf == nullptr) return {};
    if (entry.elf->device_code) return "R3 device code";
    const auto needed = std::ranges::find_if(entry.elf->needed, [&](const auto& name) { return is_cuda(name); });
    return needed == entry.elf->needed.end() ? "" : "R3 needs " + *needed;
  }

 private:
  bool is_cuda(const std::string& needed) {
    const auto [known, added] = seen_.try_emplace(needed, false);
    if (added) known->second = names_.match(name_of(needed)) != nullptr;
    return known->second;
  }
  const PatternSet names_;
  std::unordered_map<std::string_view, bool> seen_;  // DT_NEEDED names
};

class Selector {
 public:
  Selector(const index::FlatTree& tree, const elf::Loader& loader, const Rules& rules)
      : tree_(tree), loader_(loader), rules_(rules), closure_(loader) {}

  Selection select() {
    if (!tree_.has_elf_facts)
      throw Unsupported(
          "the index of this image says nothing of ELF files: index it again with this version (varve index --force)");
    index_names();
    by_rule();
    if (selection_.has_cuda) {
      add_tail();
      for (const auto& [path, name] : libraries_) openers_of(path, name);
    }
    resolve();
    if (selection_.has_cuda) report_missing();
    for (const auto& [path, needs] : closure_.needs()) selection_.needs.emplace(path, needs);
    std::ranges::sort(selection_.missing);
    return std::move(selection_);
  }

 private:
  // Names of one inode, links by what they lead to, and every name of a library.
  void index_names() {
    for (const auto& [path, entry] : tree_.entries) {
      if (!entry.link_of.empty()) hard_links_[entry.link_of].push_back(path);
      const bool is_link = entry.type == FileType::kSymlink;
      if (is_link)
        if (const auto real = loader_.real_path(path); !real.empty()) links_to_[real].push_back(path);
      if ((is_link || entry.elf != nullptr) && path.find(".so") != std::string::npos)
        libraries_.emplace_back(path, name_of(path));
    }
  }

  // R1, R2, R3, what is reached by path, and configuration: one pass, folders before what is in them.
  void by_rule() {
    FolderRules roots("R2 ", rules_.roots), config("config ", rules_.config_files);
    CudaSigns signs(rules_.names);
    const PatternSet by_path(rules_.by_path, PatternSet::Slashless::kPath);
    for (const auto& [path, entry] : tree_.entries) {
      if (const auto root = roots.find(path, entry)) {
        keep(path, root->rule);
        if (!selection_.has_cuda &&
            (root->by_folder ? !signs.rule_of(path, entry).empty() : signs.in_name(path, entry)))
          found_cuda(entry);
      } else if (const auto configured = config.find(path, entry)) {
        keep(path, configured->rule);
      } else if (const auto rule = signs.rule_of(path, entry); !rule.empty()) {
        keep(path, rule);
        found_cuda(entry);
      } else if (const auto* pattern = by_path.match(path)) {
        take_tree(path, "R4 by path " + *pattern);
      }
    }
    follow_links_of_roots();
  }

  // What they lead to: folders elsewhere, with all that is in them.
  void follow_links_of_roots() {
    std::vector<std::pair<std::string, std::string>> folders;
    do {
      folders.clear();
      for (const auto& [path, kept] : selection_.files) {
        if (!kept.rule.starts_with("R2 ") || tree_.entries.find(path)->second.type != FileType::kSymlink) continue;
        const auto real = loader_.real_path(path);
        const auto target = tree_.entries.find(real);
        if (real.empty() || target == tree_.entries.end() || target->second.type != FileType::kDirectory ||
            selection_.files.contains(real))
          continue;
        folders.emplace_back(real, kept.rule + " through " + path);
      }
      for (const auto& [folder, rule] : folders) take_tree(folder, rule);
    } while (!folders.empty());
  }

  // An entry, and if it is a folder all below it.
  void take_tree(const std::string& path, const std::string& rule) {
    keep(path, rule);
    const auto below = path + "/";
    for (auto i = tree_.entries.lower_bound(below); i != tree_.entries.end() && i->first.starts_with(below); ++i)
      keep(i->first, rule);
  }

  void add_tail() {
    const PatternSet tail(rules_.tail, PatternSet::Slashless::kBaseName);
    for (const auto& [path, entry] : tree_.entries) {
      // Copies inside wheels are for those wheels: kept if something kept needs them.
      if (path.find("-packages/") != std::string::npos) continue;
      if (const auto* pattern = tail.match(path)) take_tree(path, "R4 tail " + *pattern);
    }
    for (const auto& conditional : rules_.tail_if) {
      const PatternSet present(conditional.if_present, PatternSet::Slashless::kPath);
      const std::string* why = nullptr;
      for (const auto& [path, entry] : tree_.entries)
        if ((why = present.match(path)) != nullptr) break;
      if (why == nullptr) continue;
      const PatternSet paths(conditional.paths, PatternSet::Slashless::kPath);
      const auto rule = "R4 compiler for " + *why;
      for (const auto& [path, entry] : tree_.entries)
        if (paths.match(path) != nullptr) take_tree(path, rule);
    }
  }

  // Leftovers of no bytes, mount points of a container that ran with a GPU, do not make an image one with CUDA.
  void found_cuda(const FlatEntry& entry) {
    if (entry.type != FileType::kRegular || entry.size != 0) selection_.has_cuda = true;
  }

  void keep(const std::string& path, const std::string& rule) {
    if (!selection_.files.emplace(path, Kept{rule}).second) return;
    queue_.push_back(path);
  }

  // Follows links, names of the same inode, needs and what is opened by name, until nothing is added.
  void resolve() {
    for (;;) {
      while (!queue_.empty()) {
        const auto path = std::move(queue_.back());
        queue_.pop_back();
        follow_names(path);
        const auto& entry = tree_.entries.find(path)->second;
        if (entry.elf != nullptr && selection_.has_cuda) closure_.add(path);
      }
      if (!selection_.has_cuda) return;
      for (; next_opened_ < opened_.size(); ++next_opened_) {
        const auto& [opener, opened, required] = opened_[next_opened_];
        if (!selection_.files.contains(opener)) {
          later_.push_back(opened_[next_opened_]);
          continue;
        }
        keep(opened, "R4 opened by " + opener);
        if (const auto real = loader_.real_path(opened); !real.empty()) closure_.add(real, opener);
      }
      opened_ = std::exchange(later_, {});
      next_opened_ = 0;
      closure_.run([&](const std::string& path, const std::string& by) { keep(path, "R4 needed by " + by); });
      if (queue_.empty()) return;
    }
  }

  void follow_names(const std::string& path) {
    const auto& entry = tree_.entries.find(path)->second;
    const auto link_rule = "R4 name of " + path;
    if (entry.type == FileType::kSymlink) {
      std::vector<std::string> links;
      const auto real = loader_.real_path(path, &links);
      for (const auto& link : links) keep(link, link_rule);
      if (const auto target = tree_.entries.find(real);
          !real.empty() && target != tree_.entries.end() && target->second.type != FileType::kDirectory)
        keep(real, link_rule);
      return;
    }
    if (const auto links = links_to_.find(path); links != links_to_.end())
      for (const auto& link : links->second) keep(link, link_rule);
    if (entry.type != FileType::kRegular) return;
    const auto& first = entry.link_of.empty() ? path : entry.link_of;
    if (first != path) keep(first, link_rule);
    if (const auto names = hard_links_.find(first); names != hard_links_.end())
      for (const auto& name : names->second) keep(name, link_rule);
  }

  // Rows whose opener this name is: what they open, wherever it lies, for the same machine.
  void openers_of(const std::string& path, std::string_view name) {
    if (rows_.empty())
      for (const auto& edge : rules_.dlopen)
        rows_.push_back({.edge = &edge,
                         .opener = PatternSet({edge.opener}, PatternSet::Slashless::kBaseName),
                         .counts = counts(edge)});
    for (const auto& row : rows_) {
      if (!row.counts || row.opener.match(name) == nullptr) continue;
      const auto real = loader_.real_path(path);
      const auto file = tree_.entries.find(real);
      if (real.empty() || file == tree_.entries.end() || file->second.elf == nullptr) continue;
      if (("/" + real).find("/stubs/") != std::string::npos) continue;  // for the linker: they open nothing
      const auto major = major_of(name).empty() ? major_of(file->second.elf->soname) : major_of(name);
      for (const auto& opens : row.edge->opens) {
        const auto pattern = with_major(opens, major);
        if (row.edge->need == DlopenEdge::Need::kRequired) required_[real].emplace(pattern);
        for (const auto* opened : named(pattern)) {
          const auto target = tree_.entries.find(loader_.real_path(*opened));
          if (target == tree_.entries.end() ||
              (target->second.elf != nullptr && target->second.elf->machine != file->second.elf->machine))
            continue;
          opened_.push_back({real, *opened, pattern});
        }
      }
    }
  }

  // Names of libraries that a pattern matches, in the whole image.
  const std::vector<const std::string*>& named(const std::string& pattern) {
    auto [known, added] = named_.try_emplace(pattern);
    if (added) {
      const PatternSet set({pattern}, PatternSet::Slashless::kBaseName);
      for (const auto& [path, name] : libraries_)
        if (set.match(name) != nullptr) known->second.push_back(&path);
    }
    return known->second;
  }

  bool counts(const DlopenEdge& edge) {
    return edge.when.empty() ||
           std::ranges::any_of(edge.when, [&](const auto& pattern) { return !named(pattern).empty(); });
  }

  // What a kept opener cannot find: beside itself, on its search path, or in the sibling folders of NVIDIA's wheels,
  // which frameworks load first.
  void report_missing() {
    for (const auto& [opener, patterns] : required_) {
      if (!selection_.files.contains(opener)) continue;
      for (const auto& pattern : patterns) {
        const auto& candidates = named(pattern);
        if (std::ranges::any_of(candidates, [&](const auto* one) { return reaches(opener, *one); })) continue;
        auto line = opener + " opens " + pattern + ", which the image does not have";
        if (!candidates.empty())
          line = opener + " opens " + pattern + "; there is " + *candidates.front() + ", but not where it searches";
        selection_.missing.push_back(std::move(line));
      }
    }
  }

  bool reaches(const std::string& opener, const std::string& candidate) {
    if (parent_of(opener) == parent_of(candidate)) return true;
    // Wheels: …/nvidia/cudnn/lib/x and …/nvidia/cublas/lib/y.
    const auto wheel_of = [](std::string_view path) -> std::string_view {
      const auto at = path.rfind("-packages/nvidia/");
      return at == std::string_view::npos ? std::string_view() : path.substr(0, at);
    };
    if (const auto wheel = wheel_of(candidate); !wheel.empty()) {
      if (wheel == wheel_of(opener)) return true;
      if (opener.starts_with(wheel)) return true;  // torch, TensorFlow and JAX of the same site folder search there
    }
    return !loader_.resolve_name(opener, name_of(candidate)).matches.empty();
  }

  struct Row {
    const DlopenEdge* edge;
    PatternSet opener;
    bool counts;
  };
  struct Opened {
    std::string opener, opened, pattern;
  };

  const index::FlatTree& tree_;
  const elf::Loader& loader_;
  const Rules& rules_;
  elf::NeedsClosure closure_;
  Selection selection_;
  std::vector<std::string> queue_;
  std::unordered_map<std::string, std::vector<std::string>> hard_links_, links_to_;
  std::vector<std::pair<std::string, std::string_view>> libraries_;
  std::vector<Row> rows_;
  std::map<std::string, std::vector<const std::string*>, std::less<>> named_;
  std::map<std::string, std::set<std::string>, std::less<>> required_;
  std::vector<Opened> opened_, later_;
  std::size_t next_opened_ = 0;
};

}  // namespace

Selection select_cuda(const index::FlatTree& tree, const elf::Loader& loader, const Rules& rules) {
  return Selector(tree, loader, rules).select();
}

std::vector<std::string> droppable_paths(const index::FlatTree& tree, const Rules& rules) {
  const PatternSet droppable(rules.droppable, PatternSet::Slashless::kPath),
      names(rules.names, PatternSet::Slashless::kBaseName, true);
  std::unordered_set<std::string_view> folders;
  std::vector<std::string> paths;
  for (const auto& [path, entry] : tree.entries) {
    if (path.empty() || (!folders.contains(parent_of(path)) && droppable.match(path) == nullptr)) continue;
    if (entry.type == FileType::kDirectory) folders.insert(path);
    if (entry.type != FileType::kDirectory && names.match(path) == nullptr) paths.push_back(path);
  }
  return paths;
}

}  // namespace varve::cuda
