#pragma once
// Whether writing beside pinned images left them what they were.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/work.h"
#include "core/oci/repository.h"
#include "indexer/pins.h"

namespace varve::indexer {

struct WatchedPins {
  std::uint64_t images = 0;           // pinned now, each once in a place
  std::vector<std::string> places;    // names of the repositories
  std::vector<std::string> problems;  // empty: every pin of before is one still, and every one is whole
};

// Holds the pins of some repositories as they were when it was made. Of several with one name the first is taken.
class PinWatch {
 public:
  // Throws as read_pins() does.
  explicit PinWatch(const std::vector<std::shared_ptr<oci::Repository>>& repositories);
  // Reads the lists again. Whole means that manifest, config, blobs and index are there under their digests. Throws as
  // read_pins() and check_pins() do.
  WatchedPins check(const Work& work) const;

 private:
  struct Place {
    std::shared_ptr<oci::Repository> repository;
    std::vector<Pin> pins;
  };
  static void check_place(const Place& before, const Work& work, WatchedPins& found);

  std::vector<Place> places_;
};

}  // namespace varve::indexer
