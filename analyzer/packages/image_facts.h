#pragma once
// What an image's manifest and config say to every source of its files.
#include <map>
#include <string>
#include <vector>

#include "analyzer/packages/file_source.h"
#include "core/oci/image.h"

namespace varve::packages {

// `stream_bytes` per layer.
std::vector<SourceLayer> layers_of(const oci::Image& image, const std::vector<std::uint64_t>& stream_bytes);
// The config's Env; of equal names the last counts.
std::map<std::string, std::string> environment_of(const oci::Image& image);

}  // namespace varve::packages
