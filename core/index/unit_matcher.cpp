#include "core/index/unit_matcher.h"

namespace varve::index {

bool UnitMatcher::is_same(std::size_t content, const UnitPlace& place) const {
  const auto& source = table(place);
  return place.content < source.size() && source.is_unit(place.content) &&
         source.digest(place.content) == layer_.digest(content) &&
         source.range(place.content).length == layer_.range(content).length;
}

std::optional<UnitPlace> UnitMatcher::find(std::size_t content) {
  if (!layer_.is_unit(content)) return std::nullopt;
  if (last_)
    if (const UnitPlace next{.source = last_->source, .content = last_->content + 1}; is_same(content, next))
      return last_ = next;
  const auto digest = layer_.digest(content);
  for (std::uint32_t source = 0; source < sources_.size(); ++source)
    if (const auto found = sources_[source]->find(digest))
      if (const UnitPlace place{.source = source, .content = *found}; is_same(content, place)) return last_ = place;
  return std::nullopt;
}

std::vector<UnitPlace> UnitMatcher::find_bytecode(std::size_t content) {
  std::vector<UnitPlace> places;
  const auto bytecode = layer_.bytecode(content);
  if (!bytecode) return places;
  for (std::uint32_t source = 0; source < sources_.size(); ++source)
    for (const auto old : sources_[source]->find_bytecode(bytecode->path, layer_.range(content).length))
      if (places.size() < kMostBytecode) places.push_back({.source = source, .content = old});
  if (!places.empty()) last_ = places.front();
  return places;
}

}  // namespace varve::index
