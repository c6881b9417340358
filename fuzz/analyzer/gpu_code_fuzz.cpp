// Cold code in any file: what is cold lies inside the file, in order, and holds no entry that stays.
#include <cstdint>
#include <cstdlib>

#include "analyzer/packages/cuda_architectures.h"
#include "analyzer/prune/gpu_code.h"
#include "core/base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varve;
  const ByteView file(reinterpret_cast<const std::byte*>(data), size);
  const index::RangeReader read = [&](ByteRange range) {
    if (!range.fits_in(size)) std::abort();
    return to_bytes(file.subspan(range.offset, range.length));
  };
  const cuda::GpuArchitectures gpus{80, 90};
  prune::GpuCodeFound found;
  try {
    found = prune::cold_gpu_code(size, read, gpus);
  } catch (const Unsupported&) {
    return 0;
  }
  std::uint64_t end = 0;
  for (const auto& range : found.cold) {
    if (range.length == 0 || range.offset < end || !range.fits_in(size)) std::abort();
    end = range.end();
  }
  packages::for_each_code(size, read, [&](const packages::CodeEntry& entry) {
    const bool stays = entry.target.kind != packages::CodeKind::kMachine ||
                       cuda::runs_machine_code(80, entry.target.number, entry.target.variant) ||
                       cuda::runs_machine_code(90, entry.target.number, entry.target.variant);
    for (const auto& range : found.cold)
      if (stays && entry.range.offset < range.end() && range.offset < entry.range.end()) std::abort();
  });
  return 0;
}
