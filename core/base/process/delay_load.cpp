#include "core/base/process/delay_load.h"

#include <dlfcn.h>

#include <atomic>
#include <optional>

#include "core/base/errors.h"
#include "core/base/files/file_id.h"

namespace varve {
namespace {

// Before all others that are there from the start: to make one of these may take a library.
[[gnu::init_priority(101)]] const std::optional<FileId> kRootAtStart = find_file_id("/");

}  // namespace
}  // namespace varve

void* varve_find_delayed(const char* soname, varve::DelayedFunction& function) {
  using namespace varve;
  if (!kRootAtStart || find_file_id("/") != kRootAtStart)
    fail<Error>("{} is not loaded from another root than that in which this program began", soname);
  void* const handle = ::dlopen(soname, RTLD_LAZY | RTLD_LOCAL);  // the same each time, and never closed
  void* const found = handle != nullptr ? ::dlsym(handle, function.name) : nullptr;
  if (found == nullptr) fail<Error>("{}: it cannot be loaded: {}", soname, ::dlerror());
  std::atomic_ref(function.entry).store(found, std::memory_order_release);
  return found;
}
