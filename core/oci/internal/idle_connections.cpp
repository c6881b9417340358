#include "core/oci/internal/idle_connections.h"

#include <algorithm>

namespace varve::oci::internal {
namespace {

constexpr std::size_t kMostIdle = 32;
constexpr std::chrono::seconds kFreshFor{15};

}  // namespace

std::unique_ptr<HttpConnection> IdleConnections::take(std::string_view origin, const std::vector<FileStamp>& trusted) {
  return idle_.with([&](auto& idle) -> std::unique_ptr<HttpConnection> {
    std::erase_if(idle, [&](const auto& one) { return one->origin == origin && one->trusted != trusted; });
    const auto found = std::find_if(idle.rbegin(), idle.rend(), [&](const auto& one) { return one->origin == origin; });
    if (found == idle.rend()) return nullptr;
    auto taken = std::move(*found);
    idle.erase(std::next(found).base());
    return taken;
  });
}

void IdleConnections::put(std::unique_ptr<HttpConnection> connection) {
  connection->idle_since = std::chrono::steady_clock::now();
  idle_.with([&](auto& idle) {
    idle.push_back(std::move(connection));
    if (idle.size() > kMostIdle) idle.erase(idle.begin());
  });
}

std::size_t IdleConnections::count_fresh(std::string_view origin) {
  const auto since = std::chrono::steady_clock::now() - kFreshFor;
  return idle_.with([&](const auto& idle) {
    return std::size_t(std::ranges::count_if(
        idle, [&](const auto& one) { return one->origin == origin && one->idle_since >= since; }));
  });
}

}  // namespace varve::oci::internal
