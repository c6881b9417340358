#include "snapshotter/held_trees.h"

#include <utility>

#include "core/base/error_text.h"
#include "core/base/log.h"

namespace varve::snapshotter {
namespace {

constexpr std::size_t kMostOthers = 3;  // images that are tried where one cannot be mounted

}  // namespace

// While it lives the tree is not released, whatever the table says yet.
class HeldTrees::BeingHeld {
 public:
  BeingHeld(HeldTrees& held, const TreeId& tree) : held_(held), tree_(tree) {
    auto state = held_.state_.lock();
    held_.changed_.wait(state.native(), [&] { return !state->being_released.contains(tree_); });
    ++state->being_held[tree_];
  }
  ~BeingHeld() {
    auto state = held_.state_.lock();
    if (--state->being_held[tree_] == 0) state->being_held.erase(tree_);
  }
  BeingHeld(const BeingHeld&) = delete;
  BeingHeld& operator=(const BeingHeld&) = delete;

 private:
  HeldTrees& held_;
  const TreeId tree_;
};

HeldTrees::Held HeldTrees::hold(std::int64_t id, const TreeId& tree, const std::string& chain) {
  std::vector<Seed> ways;
  {
    auto table = table_.lock();
    const auto image = table->find_image(tree.image);
    ways.push_back({.tree = tree, .reference = image ? image->reference : "", .chain = chain});
    for (auto& seed : table->seeds(chain))
      if (seed.tree != tree && ways.size() <= kMostOthers) ways.push_back(std::move(seed));
  }
  std::string why;
  bool may_pass = false;
  for (const auto& way : ways) {
    if (way.reference.empty()) continue;
    const BeingHeld being_held(*this, way.tree);
    try {
      auto dir = trees_.hold(way.tree, way.reference);
      if (way.tree != tree) {
        table_.lock()->set_tree(id, way.tree);
        log::warn("the tree of {} takes the place of that of {}, which has the same layers: {}", way.reference,
                  tree.image.to_string(), why);
      }
      return {.tree = way.tree, .dir = std::move(dir)};
    } catch (const std::exception& error) {
      if (why.empty()) {
        why = error_text(error);
        may_pass = dynamic_cast<const TemporaryError*>(&error) != nullptr;
      }
    }
  }
  const auto text = fmt::format("the tree of the lowest {} layers of {} is not mounted: {}", tree.layers,
                                ways.front().reference.empty() ? tree.image.to_string() : ways.front().reference,
                                why.empty() ? "the table does not say where the image is" : why);
  if (may_pass) throw TemporaryError(text);
  throw FailedPrecondition(text);
}

void HeldTrees::release_unused() {
  for (const auto& tree : trees_.held()) {
    {
      auto state = state_.lock();
      if (state->being_held.contains(tree) || !state->being_released.insert(tree).second) continue;
    }
    // Whoever wants it from here on waits; whoever had wanted it before is in the table.
    try {
      if (!table_.lock()->is_in_use(tree)) trees_.release(tree);
    } catch (const std::exception& error) {
      log::warn("{} is still mounted though no snapshot needs it: {}", tree.image.to_string(), error_text(error));
    }
    state_.with([&](State& state) { state.being_released.erase(tree); });
    changed_.notify_all();
  }
}

}  // namespace varve::snapshotter
