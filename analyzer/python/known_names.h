#pragma once
// What is generally known of public distributions, for use where no image tells. Tables: known_names_table.inc and
// gpu_names_table.inc, kept by hand.
#include <string_view>
#include <vector>

namespace varve::python {

// Distributions that give the module, most used first, normalised; the longest dotted prefix that is known decides
// ("google.cloud.storage.blob" -> google-cloud-storage). Empty where nothing special is known: then the normalised
// first part is the best guess.
std::vector<std::string_view> known_distributions(std::string_view module);

// The distribution can make use of a GPU, if there is one: it computes on it, or talks to its driver. `normalized` by
// PEP 503.
bool can_use_gpu(std::string_view normalized);

}  // namespace varve::python
