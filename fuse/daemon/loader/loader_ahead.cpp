#include "fuse/daemon/loader/loader_ahead.h"

#include <sys/resource.h>

#include <string>
#include <utility>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/daemon/loader/ahead_fetcher.h"
#include "fuse/daemon/loader/library_loads.h"
#include "fuse/daemon/loader/module_imports.h"
#include "fuse/daemon/pages/shown_files.h"

namespace varve::fuse {
namespace {

constexpr int kNice = 10;  // Python runs beside it
constexpr std::size_t kMaxEarlyReads = 4096;

}  // namespace

LoaderAhead::LoaderAhead(const index::ErofsReader& tree, std::vector<std::shared_ptr<StreamFile>> devices)
    : tree_(tree), devices_(std::move(devices)), events_(std::make_shared<LoaderEvents>()) {}

std::jthread LoaderAhead::start(void (LoaderAhead::*run)(const std::stop_token& stop)) {
  return std::jthread([this, run](const std::stop_token& stop) {
    ::setpriority(PRIO_PROCESS, 0, kNice);  // of this thread
    try {
      (this->*run)(stop);
    } catch (const Cancelled&) {
    } catch (const std::exception& error) {
      log::warn("what loaders read is not fetched ahead: {}", error.what());
      begun_ = false;
    }
  });
}

void LoaderAhead::begin(LookThrough when) {
  std::call_once(once_, [&] {
    when_ = when;
    begun_ = true;
    thread_ = start(&LoaderAhead::run);
  });
}

void LoaderAhead::note_read(std::uint32_t device, ByteRange device_range) {
  if (!begun_.load(std::memory_order_relaxed)) return;
  const auto* imports = known_imports_.load(std::memory_order_acquire);
  const auto* libraries = known_libraries_.load(std::memory_order_acquire);
  if (imports == nullptr) {
    const std::lock_guard guard(events_->mutex);
    imports = known_imports_.load(std::memory_order_acquire);
    libraries = known_libraries_.load(std::memory_order_acquire);
    if (imports == nullptr && events_->early.size() < kMaxEarlyReads) {
      events_->early.emplace_back(device, device_range);
      events_->changed.notify_one();
    }
  }
  if (libraries != nullptr) note_load(*libraries, device, device_range);
  if (imports != nullptr) note_import(*imports, device, device_range);
}

void LoaderAhead::note_load(const LibraryTable& libraries, std::uint32_t device, ByteRange device_range) {
  for (const auto& head : libraries.heads_in(device, device_range)) {
    const auto number = std::size_t(&head - libraries.heads().data());
    if (libraries.note_begun(number)) events_->add(events_->news.begun, number);
  }
  note_relocating(device, device_range);
  if (auto parts = exits_.note_read(device, device_range); !parts.empty())
    events_->add(events_->news.exits, std::move(parts));
}

void LoaderAhead::note_import(const Imports& imports, std::uint32_t device, ByteRange device_range) {
  for (const auto& module : imports.modules.modules_in(device, device_range)) {
    const auto number = std::size_t(&module - imports.modules.modules().data());
    if (imports.modules.note_begun(number)) events_->add(events_->news.imported, number);
  }
  if (const auto group = imports.packages.note_read(device, device_range)) events_->add(events_->news.packages, *group);
}

void LoaderAhead::note_relocating(std::uint32_t device, ByteRange device_range) {
  if (!events_->any_awaited.load(std::memory_order_relaxed)) return;
  const std::lock_guard guard(events_->mutex);
  auto& awaited = events_->awaited;
  auto entry = awaited.lower_bound({device, device_range.end()});
  if (entry == awaited.begin()) return;
  --entry;
  const auto& [place, part] = *entry;
  if (place.device != device || !ByteRange{place.offset, part.length}.overlaps(device_range)) return;
  events_->news.relocating.push_back(part.library);
  awaited.erase(entry);
  events_->any_awaited = !awaited.empty();
  events_->changed.notify_one();
}

void LoaderAhead::find_libraries(const std::stop_token& stop) {
  auto libraries = std::make_unique<LibraryTable>(tree_);
  for_each_name(tree_, [&](index::Nid nid, FileType type, const std::string& folder, std::string_view name) {
    if (stop.stop_requested()) throw Cancelled("looking for libraries: stopped");
    libraries->add(NamedFile(tree_, nid, folder, name), type);
  });
  libraries->finish();
  libraries_ = std::move(libraries);
  const auto early = [&] {
    const std::lock_guard guard(events_->mutex);
    known_libraries_.store(libraries_.get(), std::memory_order_release);
    return events_->early;
  }();
  for (const auto& [device, range] : early) note_load(*libraries_, device, range);
}

void LoaderAhead::find_imports(const std::stop_token& stop) {
  auto imports = std::make_unique<Imports>();
  for_each_name(tree_, [&](index::Nid nid, FileType type, const std::string& folder, std::string_view name) {
    if (stop.stop_requested()) throw Cancelled("looking for modules: stopped");
    if (type != FileType::kRegular) return;
    const NamedFile file(tree_, nid, folder, name);
    imports->packages.add(file);
    imports->modules.add(file);
  });
  imports->packages.finish();
  imports->modules.finish();
  imports_ = std::move(imports);
  const auto early = [&] {
    const std::lock_guard guard(events_->mutex);
    known_imports_.store(imports_.get(), std::memory_order_release);
    events_->news.imports_came = true;
    events_->changed.notify_one();
    return std::exchange(events_->early, {});
  }();
  for (const auto& [device, range] : early) note_import(*imports_, device, range);
}

void LoaderAhead::run(const std::stop_token& stop) {
  if (when_ == LookThrough::kAtFirstRead) {
    std::unique_lock lock(events_->mutex);
    if (!events_->changed.wait(lock, stop, [&] { return !events_->early.empty(); })) return;
  }
  find_libraries(stop);
  imports_thread_ = start(&LoaderAhead::find_imports);

  AheadFetcher fetcher(devices_, events_);
  LibraryLoads loads(tree_, *libraries_, fetcher, *events_, exits_);
  ModuleImports imports(tree_, fetcher);
  while (const auto news = events_->next(stop)) {
    if (news->imports_came) imports.know(imports_->modules);
    for (const auto head : news->begun) loads.begin(head);
    for (const auto module : news->imported) imports.begin(module);
    for (const auto group : news->packages) {
      const auto parts = imports_->packages.extents_of(group);
      log::debug("a package is being imported: {} parts of it are fetched ahead", parts.size());
      fetcher.fetch_now(parts);
    }
    for (const auto library : news->relocating) loads.note_relocating(library);
    for (const auto& parts : news->exits) {
      log::debug("a process exits: {} parts of libraries are fetched ahead", parts.size());
      fetcher.fetch_now(parts);
    }
    for (const auto& arrival : news->arrived) {
      if (stop.stop_requested()) return;
      if (arrival.kind == LoaderEvents::Kind::kBytecode)
        imports.take(arrival);
      else
        loads.take(arrival);
    }
    for (const auto library : imports.take_libraries()) loads.foresee(library);
    imports.go_on();
    loads.go_on();
    for (const auto python : loads.take_pythons()) imports.begin_python(libraries_->heads()[python]);
    imports.go_on();  // of a Python that begins: behind what its loader reads
  }
}

}  // namespace varve::fuse
