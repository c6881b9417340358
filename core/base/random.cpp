#include "core/base/random.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <random>

#include "core/base/errors.h"

namespace varve {

Bytes random_bytes(std::size_t count) {
  Bytes bytes(count);
  if (::getrandom(bytes.data(), bytes.size(), 0) != ssize_t(bytes.size())) fail_errno("get random bytes");
  return bytes;
}

std::string random_hex(std::size_t bytes) {
  std::string text;
  for (const auto byte : random_bytes(bytes)) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

std::chrono::milliseconds random_wait(std::chrono::milliseconds least, std::chrono::milliseconds most) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::chrono::milliseconds(std::uniform_int_distribution(least.count(), most.count())(random));
}

}  // namespace varve
