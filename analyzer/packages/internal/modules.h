#pragma once
// Which distribution a dotted name means, and what a distribution gives to import.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "analyzer/packages/internal/ownership.h"
#include "analyzer/packages/internal/record.h"

namespace varve::packages::internal {

// Fills inventory.modules and each distribution's `imports` and `top_level`. Reads the __init__ files of packages that
// several distributions share: a namespace in the old styles says so there.
void find_modules(const index::FileSource& source, const FileTable& table, const Records& records,
                  const std::vector<Installed>& installed, Ownership& ownership, Inventory& inventory);

}  // namespace varve::packages::internal
