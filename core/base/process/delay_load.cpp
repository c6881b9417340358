#include "core/base/process/delay_load.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <atomic>

#include "core/base/errors.h"

namespace varve {
namespace {

struct RootPlace {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const RootPlace&) const = default;
};

RootPlace place_of_root() {
  struct stat status = {};
  if (::stat("/", &status) != 0) fail_errno("look at /");
  return {status.st_dev, status.st_ino};
}

const RootPlace kRootAtStart = place_of_root();

}  // namespace
}  // namespace varve

void* varve_find_delayed(const varve::DelayedLibrary& library, std::size_t function) {
  using namespace varve;
  if (place_of_root() != kRootAtStart)
    fail<Error>("{} is not loaded from another root than that in which this program began", library.soname);
  void* const handle = ::dlopen(library.soname, RTLD_LAZY | RTLD_LOCAL);  // the same each time, and never closed
  void* const found = handle != nullptr ? ::dlsym(handle, library.names[function]) : nullptr;
  if (found == nullptr) fail<Error>("{}: it cannot be loaded: {}", library.soname, ::dlerror());
  std::atomic_ref(library.entries[function]).store(found, std::memory_order_release);
  return found;
}
