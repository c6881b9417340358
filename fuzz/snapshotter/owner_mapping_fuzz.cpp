// Labels of containers with a user namespace of their own: read or refused, and never a range of no ids.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/base/errors.h"
#include "snapshotter/snapshot_folders.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve::snapshotter;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const auto mapping = owner_mapping({{kUidMappingLabel, text}, {kGidMappingLabel, text}});
    if (!mapping || mapping->uids.empty() || mapping->uids != mapping->gids) std::abort();
    for (const auto& range : mapping->uids)
      if (range.count == 0) std::abort();
  } catch (const varve::UsageError&) {
  }
  return 0;
}
