#pragma once
// The steps that run in the image's Python (frameworks/): each prints what probe_output.h describes.
#include <string>
#include <string_view>

namespace varve::gpu {

// A whole program for python3 -c. Throws NotFound for a step that is not one of these.
std::string framework_script(std::string_view step);

}  // namespace varve::gpu
