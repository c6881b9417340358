#pragma once
// What distributions need, told for the image's own Pythons, and what of it is there.
#include <vector>

#include "analyzer/packages/internal/joins.h"

namespace varve::packages::internal {

// Fills `needs`, `scripts`, `entry_point_groups` and `gpu`. Needs interpreters and the distributions' names and
// versions.
void find_needs(const Records& records, const std::vector<Installed>& installed, const FileTable& table,
                Inventory& inventory);

}  // namespace varve::packages::internal
