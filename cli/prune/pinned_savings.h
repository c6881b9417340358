#pragma once
// What the pinned versions beside an image hold of its distributions.
#include "analyzer/prune/savings.h"
#include "cli/command.h"
#include "core/index/opened_image.h"

namespace varve::cli {

// Of the image itself and of all that are pinned in its repository. Each is read once on this machine and its shares
// are kept under --root; a pinned image that has no index, or cannot be read, is counted as unknown.
prune::Savings pinned_savings(const Context& context, const index::OpenedImage& image,
                              const packages::Inventory& inventory);

}  // namespace varve::cli
