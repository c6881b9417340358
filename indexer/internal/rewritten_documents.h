#pragma once
// The documents of an image whose layers were written anew: all else stays as it was said.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/oci/image.h"

namespace varve::indexer {

// A layer's type in OCI's words: a Docker manifest cannot name zstd layers. Throws Unsupported for a type that is none
// of a layer.
std::string oci_layer_type(const oci::Descriptor& layer);

// The old manifest with these layers and this config. `latest_created`: a later "created" becomes it (seconds since
// 1970); one that is no time stays.
std::string rewritten_manifest(const oci::Image& image, const std::vector<oci::Descriptor>& layers,
                               const oci::Descriptor& config, std::optional<std::int64_t> latest_created = {});

struct LayerHistory {
  Digest diff_id;
  int old_layer = -1;   // of the old image, whose history goes on to speak of it; -1 = a new one
  std::string comment;  // of a new one: what is in it
};
// The old config with these layers and labels; everything else as it was, unknown fields and the order of all fields
// too. One entry of history per layer, without a clock. `latest_created` as above, of config and history.
std::string rewritten_config(const oci::Image& image, const std::vector<LayerHistory>& layers,
                             const std::map<std::string, std::string>& labels,
                             std::optional<std::int64_t> latest_created = {});

}  // namespace varve::indexer
