#pragma once
// Rectangles whose areas are in proportion to numbers, as square as they can be.
#include <vector>

namespace varve::report {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

// One box for each value, in their order; together they fill `into`. Values are positive and descending (Bruls,
// Huizing, van Wijk: Squarified Treemaps).
std::vector<Box> squarify(const std::vector<double>& values, Box into);

}  // namespace varve::report
