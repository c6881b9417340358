#pragma once
// `image optimize --relayer`: the parts put together.
#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cli/command.h"
#include "indexer/relayer_image.h"

namespace varve::cli {

struct RelayerArguments {
  std::string image;  // as the user wrote it
  std::string destination;
  std::string previous;   // the image's last version as --relayer wrote it; "" = none
  std::string take_over;  // "0,1", "none"; "" = those that are worth it
  indexer::RelayerOptions options;
};

// Packs an indexed image by what its files belong to and writes it, printing what was done.
void relayer_indexed_image(const Context& context, RelayerArguments& arguments);

// The layers of what was written, as --json shows them.
nlohmann::json layers_json(const indexer::RelayerReport& report);

}  // namespace varve::cli
