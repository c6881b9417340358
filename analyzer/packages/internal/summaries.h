#pragma once
// Sums over files: what is wasted, what nobody owns, what each layer holds, and whose each folder is.
#include <vector>

#include "analyzer/packages/internal/ownership.h"

namespace varve::packages::internal {

void sum_waste(const index::FileSource& source, const FileTable& table, const Records& records,
               const std::vector<StaleRecord>& stale, Inventory& inventory);
// After sum_waste().
void sum_layers(const index::FileSource& source, const FileTable& table, const Ownership& ownership,
                Inventory& inventory);
void sum_unowned(const FileTable& table, const Ownership& ownership, Inventory& inventory);
void find_path_owners(const FileTable& table, const Ownership& ownership, Inventory& inventory);

}  // namespace varve::packages::internal
