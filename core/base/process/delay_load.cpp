#include "core/base/process/delay_load.h"

#include <dlfcn.h>

#include <atomic>

#include "core/base/errors.h"
#include "core/base/files/file_id.h"

namespace varve {
namespace {

const auto kRootAtStart = find_file_id("/");

}  // namespace
}  // namespace varve

void* varve_find_delayed(const varve::DelayedLibrary& library, std::size_t function) {
  using namespace varve;
  if (!kRootAtStart || find_file_id("/") != kRootAtStart)
    fail<Error>("{} is not loaded from another root than that in which this program began", library.soname);
  void* const handle = ::dlopen(library.soname, RTLD_LAZY | RTLD_LOCAL);  // the same each time, and never closed
  void* const found = handle != nullptr ? ::dlsym(handle, library.names[function]) : nullptr;
  if (found == nullptr) fail<Error>("{}: it cannot be loaded: {}", library.soname, ::dlerror());
  std::atomic_ref(library.entries[function]).store(found, std::memory_order_release);
  return found;
}
