#include "indexer/pin_watch.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace varve::indexer {
namespace {

constexpr unsigned kWatchJobs = 8;  // mostly waiting for a registry

std::string watched_text(const Pin& pin) {
  return pin.name.empty() ? pin.image.digest.to_string()
                          : fmt::format("{} ({})", pin.name, pin.image.digest.to_string());
}

}  // namespace

PinWatch::PinWatch(const std::vector<std::shared_ptr<oci::Repository>>& repositories) {
  for (const auto& repository : repositories) {
    if (std::ranges::any_of(places_,
                            [&](const Place& place) { return place.repository->name() == repository->name(); }))
      continue;
    places_.push_back({.repository = repository, .pins = read_pins(*repository)});
  }
}

WatchedPins PinWatch::check(const Work& work) const {
  WatchedPins found;
  for (const auto& place : places_) check_place(place, work, found);
  return found;
}

void PinWatch::check_place(const Place& before, const Work& work, WatchedPins& found) {
  auto& repository = *before.repository;
  const auto place = repository.name();
  found.places.push_back(place);
  const auto now = read_pins(repository);
  std::set<Digest> counted;
  for (const auto& check : check_pins(repository, now, false, kWatchJobs, work)) {
    counted.insert(check.pin.image.digest);  // an image may be promised more than once
    for (const auto& problem : check.problems)
      found.problems.push_back(fmt::format("{} {}: {}", place, watched_text(check.pin), problem));
    // Under its digest there is nothing but the very bytes that were promised: the repository checks that when it
    // reads them.
    const auto document = repository.manifest(check.pin.image.digest.to_string());
    if (document.descriptor.size != check.pin.image.size)
      found.problems.push_back(fmt::format("{} {}: its manifest has {} bytes instead of {}", place,
                                           watched_text(check.pin), document.descriptor.size, check.pin.image.size));
  }
  found.images += counted.size();
  for (const auto& pin : before.pins) {
    if (std::ranges::none_of(now, [&](const Pin& other) { return other.image.digest == pin.image.digest; }))
      found.problems.push_back(
          fmt::format("{} {}: it was pinned when this began, and is no longer", place, watched_text(pin)));
  }
}

}  // namespace varve::indexer
