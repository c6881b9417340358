#pragma once
// The rules on GPU memory, each a function that adds what it finds. docs/guide/notebooks.md says what they mean.
#include <string>
#include <string_view>

#include "analyzer/notebooks/findings.h"
#include "analyzer/notebooks/internal/hinted_code.h"

namespace varve::notebooks {

class Hints {
 public:
  Hints(const HintedCode& code, Findings& findings) : code_(code), findings_(findings) {}
  void add(int statement, std::string kind, std::string_view text);
  bool full() const;

 private:
  const HintedCode& code_;
  Findings& findings_;
};

// On each statement of code that uses PyTorch, and of code that uses Transformers.
void check_torch_statement(const HintedCode& code, int index, Hints& hints);
void check_transformers_statement(const HintedCode& code, int index, Hints& hints);
// On where models and data of the whole notebook are.
void check_placement(const HintedCode& code, Hints& hints);

}  // namespace varve::notebooks
