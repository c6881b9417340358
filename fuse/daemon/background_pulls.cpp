#include "fuse/daemon/background_pulls.h"

#include <algorithm>

#include "core/base/log.h"

namespace varve::fuse {
namespace {

std::uint64_t fetched_of(const std::vector<std::shared_ptr<LayerStream>>& layers) {
  std::uint64_t bytes = 0;
  for (const auto& layer : layers) bytes += layer->stats().fetched_bytes;
  return bytes;
}

}  // namespace

void BackgroundPulls::start(const What& what, const Name& name, std::vector<PulledLayer> layers) {
  state_.with([&](State& state) {
    std::erase_if(state.pulls, [](const auto& pull) { return pull.second->finished.load(); });
    if (state.stopped || state.pulls.contains(what)) return;
    auto& pull = state.pulls[what];
    pull = std::make_unique<Pull>();
    pull->name = name;
    for (const auto& layer : layers) pull->layers.push_back(layer.stream);
    pull->fetched_before = fetched_of(pull->layers);
    pull->thread = std::jthread([&pull = *pull, layers = std::move(layers)] {
      try {
        pull_layers(layers, {pull.progress, pull.cancel});
        log::info("pulled {}", pull.name.image.to_string());
      } catch (const std::exception& error) {
        log::error("pull of {}: {}", pull.name.image.to_string(), error.what());
        pull.error.with([&](std::string& text) { text = error.what(); });
      }
      pull.finished = true;
    });
  });
}

std::vector<PullStatus> BackgroundPulls::list() {
  return state_.with([](State& state) {
    std::vector<PullStatus> list;
    for (const auto& [what, pull] : state.pulls) {
      auto error = pull->error.with([](const std::string& text) { return text; });
      if (pull->finished && error.empty()) continue;
      PullStatus status;
      status.image = pull->name.image;
      status.reference = pull->name.reference;
      status.cold = what.cold;
      status.done_bytes = pull->progress.done_bytes();
      status.total_bytes = pull->progress.expected_bytes();
      status.seconds = pull->watch.seconds();
      status.error = std::move(error);
      for (const auto& layer : pull->layers) {
        const auto stats = layer->stats();
        status.fetched_bytes += stats.fetched_bytes;
        if (stats.waiting_for.empty() || stats.waiting_seconds < status.waiting_seconds) continue;
        status.waiting_seconds = stats.waiting_seconds;
        status.waiting_for = stats.waiting_for;
      }
      status.fetched_bytes -= pull->fetched_before;
      list.push_back(std::move(status));
    }
    return list;
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
