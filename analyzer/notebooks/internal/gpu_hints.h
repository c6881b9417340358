#pragma once
#include <vector>

#include "analyzer/notebooks/findings.h"

namespace varve::notebooks {

// Adds hints on code that may waste or run out of GPU memory (docs/guide/notebooks.md), to the findings of these cells.
// Looks at notebooks that import PyTorch or Transformers only.
void add_gpu_hints(const std::vector<Cell>& cells, Findings& findings);

}  // namespace varve::notebooks
