#pragma once
// Why something is in an image: what a name means there, and who needs it.
#include <string>
#include <vector>

#include "analyzer/packages/inventory.h"

namespace varve::packages {

// The distributions that a name means: by their own names or those of their packages, else by what they give to import.
// Never empty: throws NotFound if it is neither. They point into the inventory.
std::vector<const Distribution*> find_named(const Inventory& inventory, const std::string& name);

// Who needs this distribution of the inventory, sorted: names, and "name[extra,other]" of those that need it for these
// extras only. Needs whose markers hold nowhere on the image are nobody's.
std::vector<std::string> needed_by(const Inventory& inventory, const Distribution& wanted);

}  // namespace varve::packages
