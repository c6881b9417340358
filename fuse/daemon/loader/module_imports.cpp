#include "fuse/daemon/loader/module_imports.h"

#include <optional>
#include <utility>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/index/python/bytecode_imports.h"
#include "fuse/daemon/loader/python_start.h"

namespace varve::fuse {
namespace {

constexpr std::uint64_t kMaxBytecodeBytes = 8 << 20;  // of a larger module nothing is known
constexpr std::uint64_t kMaxUnderWay = 4 << 20;       // stream side: what the next import begins with goes behind it

}  // namespace

void ModuleImports::begin_python(const LibraryTable::Head& python) {
  for (const auto& file : read_by_python(tree_, python.file.folder, python.python_minor)) fetch_bytecode(file);
}

void ModuleImports::know(const ImportTable& modules) {
  known_ = &modules;
  for (const auto& arrival : std::exchange(early_, {})) look_into(arrival);
}

void ModuleImports::begin(std::size_t module) { fetch_bytecode(known_->file_of(known_->modules()[module])); }

void ModuleImports::go_on() {
  for (; next_module_ < modules_.size() && under_way_ < kMaxUnderWay; ++next_module_) {
    const auto& module = modules_[next_module_];
    under_way_ += module.bytes;
    fetcher_.fetch(fetcher_.pieces(module.runs, {0, module.bytes}),
                   {LoaderEvents::Kind::kBytecode, next_module_, module.bytes, false});
  }
}

// All of it, in its turn; then what it imports.
void ModuleImports::fetch_bytecode(const ImportTable::Imported& module) {
  const auto bytes = tree_.inode(module.file).size;
  if (bytes == 0 || bytes > kMaxBytecodeBytes || bytes > budget_ || modules_.size() == kMaxImported) return;
  if (!known_files_.insert(module.file).second) return;
  budget_ -= bytes;
  modules_.push_back({.file = module, .runs = tree_.runs(module.file), .bytes = bytes});
}

// The modules that a Python begins with may be here before it is known where others are.
void ModuleImports::take(const LoaderEvents::Arrival& arrival) {
  if (known_ == nullptr)
    early_.push_back(arrival);
  else
    look_into(arrival);
}

void ModuleImports::look_into(const LoaderEvents::Arrival& arrival) {
  under_way_ -= arrival.bytes;
  const auto module = std::exchange(modules_[arrival.file], {});
  try {
    const auto bytes = arrival.failed ? std::nullopt : fetcher_.read(module.runs, {0, module.bytes});
    const auto imports = bytes ? index::imports_of(*bytes) : std::nullopt;
    if (!imports) return;
    for (const auto& found : known_->find(module.file, *imports, search_)) fetch_imported(found);
  } catch (const CorruptData& error) {
    log::debug("what {} imports is not fetched ahead: {}", module.file.name, error.what());
  }
}

void ModuleImports::fetch_imported(const ImportTable::Imported& found) {
  switch (found.kind) {
    case ImportTable::Imported::Kind::kBytecode:
      return fetch_bytecode(found);
    case ImportTable::Imported::Kind::kLibrary:
      return libraries_.push_back(found.file);
    case ImportTable::Imported::Kind::kSource:
      return fetcher_.fetch_now(fetcher_.pieces(tree_.runs(found.file), {0, tree_.inode(found.file).size}));
  }
}

}  // namespace varve::fuse
