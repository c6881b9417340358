#pragma once
// Where this machine put pins, and what it knows of them, so that a list that was lost or put back to an older state is
// noticed, and can be written again. docs/formats/pins.md.
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/files/unique_fd.h"
#include "core/oci/reference.h"
#include "indexer/pins.h"

namespace varve::indexer {

// A repository as users write it, without tag: "oci:/srv/notebooks", "registry.example/team/notebook".
std::string place_of(oci::Reference reference);

// ROOT/pins.json: {"places": {PLACE: LIST}}, where a list is as it lies in the repository, or an array of digests as
// older versions wrote it. Two names of one layout folder are one place. Not shared between threads.
class KnownPins {
 public:
  // Keeps other processes that change pins of this root waiting until it is closed: what one puts into a list and what
  // it remembers belong together.
  static UniqueFd lock(const std::filesystem::path& root);

  // Throws CorruptData for a file that is no JSON object.
  explicit KnownPins(const std::filesystem::path& root);
  std::vector<std::string> places() const;
  // Empty for a place that is not known. Throws CorruptData for what is no list.
  std::vector<Pin> pins_of(const std::string& place) const;
  // The list of a place as it is now. What was known and is not in it stays known, as it may have been lost, but for
  // what was `taken_back`.
  void remember(const std::string& place, const std::vector<Pin>& list, const std::vector<Pin>& taken_back = {});

 private:
  std::filesystem::path file_;
  nlohmann::json document_ = nlohmann::json::object();
};

}  // namespace varve::indexer
