#include "analyzer/prewarm/known_uses.h"

#include <algorithm>
#include <utility>

namespace varve::prewarm {
namespace {

std::map<std::string, KnownUse> uses_in(const usage::Snapshot& snapshot) {
  std::map<std::string, KnownUse> uses;
  for (const auto& one : snapshot.distributions)
    uses[one.name] = {.sessions = std::max(one.sessions, one.file_sessions), .modules = one.modules};
  return uses;
}

}  // namespace

KnownUses::KnownUses(Ask ask) : ask_(std::move(ask)), all_(ask_(std::nullopt)) {}

const usage::ImageFacts* KnownUses::facts_of(const Digest& image) const {
  const auto found = std::ranges::find(all_.images, image, &usage::ImageFacts::digest);
  return found == all_.images.end() ? nullptr : &*found;
}

std::uint64_t KnownUses::sessions_of(const Digest& image) const {
  const auto* facts = facts_of(image);
  return facts == nullptr ? 0 : facts->launched;
}

std::map<std::string, KnownUse> KnownUses::distributions_of(const Digest& image) const {
  const auto* facts = facts_of(image);
  return facts == nullptr || facts->heard == 0 ? uses_in(all_) : uses_in(ask_(image));
}

}  // namespace varve::prewarm
