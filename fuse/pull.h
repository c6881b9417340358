#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "fuse/control_client.h"
#include "fuse/layer_stream.h"

namespace varve::fuse {

// Fetches all that is missing of the layers, behind readers. Returns when all is here; throws Cancelled soon after `stop_wanted` turns true, and the
// first error of a fetch. What was fetched until then stays. `progress` counts stream bytes that are here.
void pull_layers(const std::vector<std::shared_ptr<LayerStream>>& layers, const ProgressCallback& progress, const std::function<bool()>& stop_wanted);

}  // namespace varve::fuse
