#pragma once
#include <string>

#include "analyzer/packages/inventory.h"
#include "analyzer/usage/internal/writer.h"

namespace varve::usage {

// Replaces what is known of the image and counts its sessions anew with it, in one transaction. Throws UsageError if
// the inventory is not of an image.
void store_inventory(Writer& writer, const packages::Inventory& inventory, const std::string& label);

}  // namespace varve::usage
