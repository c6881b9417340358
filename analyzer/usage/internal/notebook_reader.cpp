#include "analyzer/usage/internal/notebook_reader.h"

#include <algorithm>

#include "analyzer/packages/inventory.h"
#include "analyzer/python/name.h"
#include "analyzer/usage/internal/clean_text.h"

namespace varve::usage {
namespace {

constexpr std::size_t kMaxHints = 100'000;

// Notebooks with the same code count as one.
struct Notebook {
  std::int64_t id = 0;  // of the copy whose path is the first in byte order
  NotebookFacts facts;
  bool has_hints = false;
};

// Distribution -> whether all imports of it are optional ones.
using Imports = std::map<std::int64_t, bool>;

std::map<std::string, Notebook> distinct_notebooks(SqlConnection& sql, Snapshot& into) {
  std::map<std::string, Notebook> distinct;  // by digest of the code
  sql.query("SELECT id, path, language, code_digest FROM notebook", {}, [&](const SqlRow& row) {
    ++into.notebooks_scanned;
    auto [at, is_new] = distinct.try_emplace(row.text(3));
    auto& notebook = at->second;
    auto path = row.text(1);
    if (!is_new) ++notebook.facts.copies;
    if (!is_new && notebook.facts.path <= path) return;
    notebook.id = row.number(0);
    notebook.facts.path = std::move(path);
    notebook.facts.language = row.text(2);
  });
  into.notebooks_distinct = distinct.size();
  return distinct;
}

std::map<std::int64_t, Imports> imports_by_notebook(SqlConnection& sql, FleetResolver& resolver) {
  std::map<std::int64_t, Imports> imports;
  const auto add = [&](std::int64_t notebook, const Owners& owners, bool optional) {
    if (owners.empty()) return;
    auto& of_notebook = imports[notebook];
    for (const auto owner : owners) {
      const auto [at, is_new] = of_notebook.try_emplace(owner, optional);
      if (!is_new) at->second = at->second && optional;
    }
  };
  sql.query("SELECT notebook_id, name, module, kind FROM notebook_import WHERE local = 0", {}, [&](const SqlRow& row) {
    add(row.number(0), resolver.of_name(row.text(1), row.text(2)), row.text(3) == "optional");
  });
  sql.query("SELECT notebook_id, package FROM notebook_install", {},
            [&](const SqlRow& row) { add(row.number(0), resolver.of_distribution(row.text(1)), false); });
  return imports;
}

void read_hints(SqlConnection& sql, std::map<std::int64_t, Notebook*>& by_id, Snapshot& into) {
  sql.query("SELECT notebook_id, kind, text, cell, line FROM notebook_hint ORDER BY notebook_id, number", {},
            [&](const SqlRow& row) {
              const auto found = by_id.find(row.number(0));
              if (found == by_id.end() || into.hints.size() >= kMaxHints) return;  // of a copy
              found->second->has_hints = true;
              into.hints.push_back({.notebook = found->second->facts.path,
                                    .kind = row.text(1),
                                    .text = row.text(2),
                                    .cell = std::uint32_t(row.number(3)),
                                    .line = std::uint32_t(row.number(4))});
            });
  std::stable_sort(into.hints.begin(), into.hints.end(),
                   [](const NotebookHint& a, const NotebookHint& b) { return a.notebook < b.notebook; });
}

const Owners& owners_in(const std::map<std::string, Owners>& names, const std::string& name) {
  static const Owners kNobody;
  const auto found = names.find(name);
  return found == names.end() ? kNobody : found->second;
}

}  // namespace

FleetResolver::FleetResolver(SqlConnection& sql, std::int64_t image_id) {
  std::vector<std::int64_t> ids;
  sql.query("SELECT id FROM image WHERE has_inventory = 1 AND (id = $1 OR $1 = 0) ORDER BY id", {image_id},
            [&](const SqlRow& row) { ids.push_back(row.number(0)); });
  for (const auto id : ids) {
    images_.emplace_back(sql, id, ImageResolver::Paths::kLeaveOut);
    read_programs(sql, id);
    read_distributions(sql, id);
  }
  for (auto* names : {&programs_, &distributions_}) {
    for (auto& [name, owners] : *names) {
      std::sort(owners.begin(), owners.end());
      owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
    }
  }
}

void FleetResolver::read_programs(SqlConnection& sql, std::int64_t image) {
  sql.query("SELECT prefix, distribution_id FROM image_path WHERE image_id = $1 AND prefix LIKE '%bin/%'", {image},
            [&](const SqlRow& row) {
              const auto path = row.text(0);
              const auto program = packages::program_of_path(path);
              if (!program.empty()) programs_[std::string(program)].push_back(row.number(1));
            });
}

void FleetResolver::read_distributions(SqlConnection& sql, std::int64_t image) {
  sql.query(
      "SELECT DISTINCT distribution.name, distribution_id FROM package JOIN distribution ON distribution.id = "
      "distribution_id "
      "WHERE image_id = $1",
      {image}, [&](const SqlRow& row) { distributions_[row.text(0)].push_back(row.number(1)); });
}

const Owners& FleetResolver::of_program(const std::string& program) const { return owners_in(programs_, program); }

const Owners& FleetResolver::of_distribution(const std::string& name) const { return owners_in(distributions_, name); }

const Owners& FleetResolver::of_name(const std::string& name, const std::string& module) {
  if (module.empty()) {
    if (const auto& owners = of_program(name); !owners.empty()) return owners;
    if (const auto& owners = of_distribution(python::normalize_name(name)); !owners.empty()) return owners;
  }
  return of_module(name);
}

const Owners& FleetResolver::of_module(const std::string& dotted) {
  const auto [at, is_new] = known_.try_emplace(dotted);
  if (!is_new) return at->second;
  std::set<std::int64_t> owners;
  for (const auto& image : images_) {
    const auto& of_image = image.of_module(dotted);
    owners.insert(of_image.begin(), of_image.end());
  }
  at->second.assign(owners.begin(), owners.end());
  return at->second;
}

bool FleetResolver::can_use_gpu(std::int64_t distribution) const {
  return std::any_of(images_.begin(), images_.end(),
                     [&](const ImageResolver& image) { return image.can_use_gpu(distribution); });
}

std::map<std::int64_t, NotebookUse> read_notebooks(SqlConnection& sql, FleetResolver& resolver,
                                                   const std::map<std::int64_t, std::string>& distribution_names,
                                                   Snapshot& into) {
  auto distinct = distinct_notebooks(sql, into);
  const auto imports = imports_by_notebook(sql, resolver);
  std::map<std::int64_t, NotebookUse> uses;
  std::map<std::int64_t, Notebook*> by_id;
  for (auto& [digest, notebook] : distinct) {
    by_id[notebook.id] = &notebook;
    const auto found = imports.find(notebook.id);
    if (found == imports.end()) continue;
    for (const auto& [distribution, optional] : found->second) {
      ++uses[distribution].notebooks;
      if (optional) ++uses[distribution].optional;
      if (resolver.can_use_gpu(distribution)) notebook.facts.imports_gpu_capable = true;
      const auto name = distribution_names.find(distribution);
      if (name != distribution_names.end()) notebook.facts.distributions.push_back(name->second);
    }
    std::sort(notebook.facts.distributions.begin(), notebook.facts.distributions.end());
  }
  read_hints(sql, by_id, into);
  // Those with hints first, as long as there is room; then in order of their paths.
  for (const bool with_hints : {true, false})
    for (auto& [id, notebook] : by_id)
      if (notebook->has_hints == with_hints && into.notebooks.size() < kMaxNotebooks)
        into.notebooks.push_back(std::move(notebook->facts));
  std::sort(into.notebooks.begin(), into.notebooks.end(),
            [](const NotebookFacts& a, const NotebookFacts& b) { return a.path < b.path; });
  return uses;
}

}  // namespace varve::usage
