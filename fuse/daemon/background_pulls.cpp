#include "fuse/daemon/background_pulls.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/journal.h"
#include "core/base/log.h"

namespace varve::fuse {
namespace {

// A link of 200 Mbit/s and 20 ms is busy with these, and a reader that comes in between waits for some 80 ms of it.
constexpr std::uint64_t kFillPieceBytes = 2 << 20;
constexpr std::uint64_t kFillPieces = 2;

}  // namespace

BackgroundPulls::Listed::Listed(const What& pulled, const Name& called, const std::vector<PulledLayer>& wanted,
                                const Progress& counted)
    : what(pulled), name(called), progress(counted) {
  for (const auto& layer : wanted) layers.push_back(layer.stream);
  fetched_before = fetched_bytes_of(layers);
}

PullStatus BackgroundPulls::Listed::status() const {
  PullStatus status;
  status.image = name.image;
  status.reference = name.reference;
  status.cold = what.cold;
  status.done_bytes = progress.done_bytes();
  status.total_bytes = progress.expected_bytes();
  status.seconds = watch.seconds();
  for (const auto& layer : layers) {
    const auto stats = layer->stats();
    status.fetched_bytes += stats.fetched_bytes;
    if (stats.waiting_for.empty() || stats.waiting_seconds < status.waiting_seconds) continue;
    status.waiting_seconds = stats.waiting_seconds;
    status.waiting_for = stats.waiting_for;
  }
  status.fetched_bytes -= fetched_before;
  return status;
}

void BackgroundPulls::start(const What& what, const Name& name, std::vector<PulledLayer> layers) {
  start(what, name, std::move(layers), false, {});
}

void BackgroundPulls::start_fill(const What& what, const Name& name, std::vector<PulledLayer> layers,
                                 std::function<bool()> somebody_waits) {
  start(what, name, std::move(layers), true,
        {.piece_bytes = kFillPieceBytes,
         .max_pieces = kFillPieces,
         .side_by_side = false,
         .somebody_waits = std::move(somebody_waits)});
}

void BackgroundPulls::start(const What& what, const Name& name, std::vector<PulledLayer> layers, bool fill,
                            PullPace pace) {
  state_.with([&](State& state) {
    std::erase_if(state.pulls, [](const auto& pull) { return pull.second->finished.load(); });
    std::erase_if(state.ending, [](const auto& pull) { return pull->finished.load(); });
    if (state.stopped) return;
    if (const auto here = state.pulls.find(what); here != state.pulls.end()) {
      if (!fill) here->second->fill = false;
      return;
    }
    auto& pull = state.pulls[what];
    pull = std::make_unique<Pull>(what, name, layers, fill);
    pull->thread = std::jthread([&pull = *pull, layers = std::move(layers), pace = std::move(pace)]() mutable {
      const auto image = pull.listed.name.image.to_string();
      if (auto waits = std::move(pace.somebody_waits))  // who asks for it himself has a share like others
        pace.somebody_waits = [&pull, waits = std::move(waits)] { return pull.fill && waits(); };
      const log::Field about_digest("IMAGE", image), about_image("IMAGE", pull.listed.name.reference);
      try {
        pull_layers(layers, {pull.progress, pull.cancel}, pace);
        log::info("pulled {}", image);
      } catch (const Cancelled&) {
        log::info("pull of {}: not needed any more", image);
      } catch (const std::exception& error) {
        log::error("pull of {}: {}", image, error.what());
        pull.error.with([&](std::string& text) { text = error.what(); });
      }
      pull.finished = true;
    });
  });
}

void BackgroundPulls::end_fill(const What& what) {
  state_.with([&](State& state) {
    const auto here = state.pulls.find(what);
    if (here == state.pulls.end() || !here->second->fill) return;
    here->second->cancel.cancel();
    state.ending.push_back(std::move(state.pulls.extract(here).mapped()));
  });
}

void BackgroundPulls::run(const What& what, const Name& name, const std::vector<PulledLayer>& layers,
                          const Work& work) {
  const auto listed = state_.with([&](State& state) {
    return state.waited_for.emplace(state.waited_for.end(), what, name, layers, work.progress);
  });
  const auto forget = [&] { state_.with([&](State& state) { state.waited_for.erase(listed); }); };
  try {
    pull_layers(layers, work);
  } catch (...) {
    forget();
    throw;
  }
  forget();
}

std::vector<PullStatus> BackgroundPulls::list() {
  return state_.with([](State& state) {
    std::vector<PullStatus> list;
    for (const auto& [what, pull] : state.pulls) {
      auto error = pull->error.with([](const std::string& text) { return text; });
      if (pull->finished && error.empty()) continue;
      list.push_back(pull->listed.status());
      list.back().fill = pull->fill;
      list.back().error = std::move(error);
    }
    for (const auto& listed : state.waited_for) list.push_back(listed.status());
    return list;
  });
}

bool BackgroundPulls::idle() {
  return state_.with([](State& state) {
    return std::ranges::all_of(state.pulls, [](const auto& pull) { return pull.second->finished.load(); });
  });
}

void BackgroundPulls::stop() {
  std::vector<std::unique_ptr<Pull>> ending;
  const auto pulls = state_.with([&](State& state) {
    state.stopped = true;
    ending = std::exchange(state.ending, {});
    return std::exchange(state.pulls, {});
  });
  for (const auto& [what, pull] : pulls) pull->cancel.cancel();
}  // joins them

}  // namespace varve::fuse
