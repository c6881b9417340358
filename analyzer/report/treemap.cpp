#include "analyzer/report/treemap.h"

#include <algorithm>
#include <numeric>

namespace varve::report {
namespace {

// The longest side over the shortest of the worst box, if areas from `largest` to `smallest` of this sum share a strip
// along `side`.
double worst_aspect(double largest, double smallest, double sum, double side) {
  const double strip = sum / side;
  return std::max(strip * strip / smallest, largest / (strip * strip));
}

}  // namespace

std::vector<Box> squarify(const std::vector<double>& values, Box into) {
  std::vector<Box> boxes;
  const double total = std::accumulate(values.begin(), values.end(), 0.0);
  if (total <= 0 || into.width <= 0 || into.height <= 0)
    return std::vector<Box>(values.size(), Box{into.x, into.y, 0, 0});
  const double scale = into.width * into.height / total;
  for (std::size_t first = 0; first < values.size();) {
    const double side = std::max(1e-9, std::min(into.width, into.height));
    double sum = values[first] * scale;
    std::size_t end = first + 1;
    for (; end < values.size(); ++end) {
      const double next = values[end] * scale;
      const double largest = values[first] * scale, smallest = values[end - 1] * scale;
      if (worst_aspect(largest, next, sum + next, side) > worst_aspect(largest, smallest, sum, side)) break;
      sum += next;
    }
    const double strip = sum / side;
    const bool upright = into.width >= into.height;  // the strip stands at the left, or lies on top
    double at = 0;
    for (std::size_t i = first; i < end; ++i) {
      const double length = values[i] * scale / strip;
      boxes.push_back(upright ? Box{into.x, into.y + at, strip, length} : Box{into.x + at, into.y, length, strip});
      at += length;
    }
    (upright ? into.x : into.y) += strip;
    (upright ? into.width : into.height) -= strip;
    first = end;
  }
  return boxes;
}

}  // namespace varve::report
