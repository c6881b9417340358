#include "fuse/daemon/background_pulls.h"

#include <algorithm>

#include "core/base/log.h"

namespace varve::fuse {

void BackgroundPulls::start(const What& what, const Digest& image, std::vector<PulledLayer> layers) {
  state_.with([&](State& state) {
    std::erase_if(state.pulls, [](const auto& pull) { return pull.second->finished.load(); });
    if (state.stopped || state.pulls.contains(what)) return;
    auto& pull = state.pulls[what];
    pull = std::make_unique<Pull>();
    pull->thread = std::jthread([&pull = *pull, image, layers = std::move(layers)] {
      try {
        Progress nobody_looks;
        pull_layers(layers, {nobody_looks, pull.cancel});
        log::info("pulled {}", image.to_string());
      } catch (const std::exception& error) {
        log::error("pull of {}: {}", image.to_string(), error.what());
      }
      pull.finished = true;
    });
  });
}

bool BackgroundPulls::idle() {
  return state_.with([](State& state) {
    return std::ranges::all_of(state.pulls, [](const auto& pull) { return pull.second->finished.load(); });
  });
}

void BackgroundPulls::stop() {
  const auto pulls = state_.with([](State& state) {
    state.stopped = true;
    return std::exchange(state.pulls, {});
  });
  for (const auto& [what, pull] : pulls) pull->cancel.cancel();
}  // joins them

}  // namespace varve::fuse
