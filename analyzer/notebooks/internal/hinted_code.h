#pragma once
// What rules on GPU memory ask of code.
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/notebooks/internal/statements.h"

namespace varve::notebooks {

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words);
bool is_name(std::string_view token);
std::string quoted(std::string_view name);

// The statements of a notebook, and the names in it that models have. Blocks are named by their header, as in
// StatementList.
class HintedCode : public StatementList {
 public:
  explicit HintedCode(const std::vector<Cell>& cells);

  // Names that are asked for .parameters(), or switched by .train() and .eval().
  const std::set<std::string_view>& models() const { return models_; }
  // Models whose parameters an optimizer was given.
  const std::set<std::string_view>& optimized() const { return optimized_; }
  // Names with .to(…) or .cuda().
  const std::set<std::string_view>& moved() const { return moved_; }

  bool block_has(int block, std::initializer_list<std::string_view> sequence) const;
  bool has_sequence(std::initializer_list<std::string_view> sequence) const;
  // In a block or a function that keeps no graph.
  bool without_graph(int index) const;
  bool cell_has_no_grad(std::uint32_t cell) const;
  // `loss = loss.item()`, `loss = float(loss)`, in the block or (-1) anywhere.
  bool made_plain(int block, std::string_view name) const;

 private:
  void find_models(const std::vector<std::string_view>& tokens);

  std::set<std::string_view> models_, optimized_, moved_;
};

// The statement calls what has that name, which is no method.
bool calls(const Statement& statement, std::string_view name);

}  // namespace varve::notebooks
