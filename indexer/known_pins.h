#pragma once
// Where this machine put pins, and what it knows of them, so that a list that was lost or put back to an older state is noticed. docs/format-pins.md.
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "indexer/pins.h"

namespace varve::indexer {

// ROOT/pins.json: {"places": {PLACE: [DIGEST...]}}. A place is a repository as users write it, without tag. Not shared between threads.
class KnownPins {
 public:
  // Throws CorruptData for a file that is no JSON object.
  explicit KnownPins(const std::filesystem::path& root);
  std::vector<std::string> places() const;
  // Digests as text; empty for a place that is not known.
  std::vector<std::string> pins_of(const std::string& place) const;
  // Replaces what is known of a place.
  void remember(const std::string& place, const std::vector<Pin>& pins);

 private:
  std::filesystem::path file_;
  nlohmann::json document_ = nlohmann::json::object();
};

}  // namespace varve::indexer
