// The step "memory": copies of every kind, every byte compared.
#include <cstring>

#include "gpu/probe/reference.h"
#include "gpu/probe/step.h"

namespace varve::gpu::probe {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

void expect_same(const std::vector<std::uint64_t>& wanted, const void* got, const char* what) {
  if (std::memcmp(wanted.data(), got, wanted.size() * kWord) == 0) return;
  std::vector<std::uint64_t> found(wanted.size());
  std::memcpy(found.data(), got, wanted.size() * kWord);
  std::size_t different = 0, first = wanted.size();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (found[i] == wanted[i]) continue;
    first = std::min(first, i);
    ++different;
  }
  fail<Error>("{}: {} of {} words of 8 bytes are wrong, the first at byte {}: {:#018x} instead of {:#018x}", what,
              different, wanted.size(), first * kWord, found[first], wanted[first]);
}

// One way through all copies, with a content of its own: what a copy did not do cannot look right because an earlier
// one did.
void check_copies(const PinnedMemory& host, const DeviceMemory& one, const DeviceMemory& other, std::uint64_t seed,
                  const char* when) {
  const auto words = random_words(one.bytes() / kWord, seed);
  std::memcpy(host.get(), words.data(), one.bytes());
  other.fill_with_nan();
  one.upload(host.get(), one.bytes());
  other.copy_from(one);
  std::memset(host.get(), 0xFF, one.bytes());
  other.download(host.get(), one.bytes());
  expect_same(words, host.get(), when);
  // And from memory that is not pinned, which the driver copies by way of its own.
  std::vector<std::uint64_t> back(words.size(), ~std::uint64_t{0});
  one.fill_with_nan();
  one.upload(words.data(), one.bytes());
  one.download(back.data(), one.bytes());
  expect_same(words, back.data(), when);
}

}  // namespace

std::string run_memory(Step& step) {
  DeviceStep gpu(step);
  const std::size_t bytes = step.size_or(256) << 20;
  std::size_t free = 0, total = 0;
  gpu.driver.call(gpu.driver.cuMemGetInfo_v2, &free, &total);
  step.report.fact("memory.free_mib", std::to_string(free >> 20));
  step.report.fact("memory.total_mib", std::to_string(total >> 20));
  if (free < 2 * bytes)
    fail<Error>("{} of {} MiB of the device are free, {} are needed: another process uses it", free >> 20, total >> 20,
                2 * bytes >> 20);
  api::CuDevicePtr first = 0;
  gpu.first("alloc.first", [&] { gpu.driver.call(gpu.driver.cuMemAlloc_v2, &first, bytes); });
  gpu.driver.call(gpu.driver.cuMemFree_v2, first);
  const DeviceMemory one(gpu.driver, bytes), other(gpu.driver, bytes);
  const PinnedMemory host(gpu.driver, bytes);
  step.report.step("comparing copies");
  check_copies(host, one, other, 1, "to the device, within it and back");
  const auto words = random_words(bytes / kWord, 2);
  std::memcpy(host.get(), words.data(), bytes);
  const auto tell_rate = [&](const char* name, double seconds) {
    step.report.fact(std::string(name) + "_gb_s", fmt::format("{:.2f}", 1e-9 * static_cast<double>(bytes) / seconds));
  };
  tell_rate("copy.h2d", gpu.steady("copy.h2d", [&] { one.upload(host.get(), bytes); }));
  tell_rate("copy.d2d", gpu.steady("copy.d2d", [&] { other.copy_from(one); }));
  std::memset(host.get(), 0xFF, bytes);
  tell_rate("copy.d2h", gpu.steady("copy.d2h", [&] { other.download(host.get(), bytes); }));
  expect_same(words, host.get(), "after the timed copies");
  check_copies(host, one, other, 3, "to the device, within it and back, after the timed copies");
  return fmt::format("{} MiB to the device, within it and back, every byte compared", bytes >> 20);
}

}  // namespace varve::gpu::probe
