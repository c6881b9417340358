#pragma once
// Python as a list of statements of tokens, for rules that look at more than one line at a time.
#include <cstdint>
#include <string_view>
#include <vector>

#include "analyzer/notebooks/findings.h"

namespace varve::notebooks {

struct Statement {
  std::uint32_t cell = 0, line = 0;
  int indent = 0;
  int parent = -1;                       // the header of the block it stands in; -1: none
  std::vector<std::string_view> tokens;  // words, numbers, literals with their quotes, operators; no comments

  std::string_view word() const { return tokens.front(); }
  bool has(std::string_view token) const;
  // Place of `sequence` of tokens at or behind `from`, or -1.
  int find(std::initializer_list<std::string_view> sequence, int from = 0) const;
};

class StatementList {
 public:
  // Cells of other languages, and lines that are IPython's, are left out. What is in brackets or strings that never end
  // is lost.
  explicit StatementList(const std::vector<Cell>& cells);

  const std::vector<Statement>& all() const { return statements_; }
  const Statement& operator[](int index) const { return statements_[static_cast<std::size_t>(index)]; }
  int size() const { return static_cast<int>(statements_.size()); }
  bool has(std::string_view token) const;
  bool has_any(std::initializer_list<std::string_view> tokens) const;

  // The nearest loop around a statement, without leaving its function; -1 if there is none.
  int loop_of(int index) const;
  int function_of(int index) const;
  // The end (exclusive) of what stands in the block of the header `block`.
  int block_end(int block) const { return ends_[static_cast<std::size_t>(block)]; }

 private:
  void read_cell(const Cell& cell);
  void add(Statement&& statement, std::vector<int>& open);

  std::vector<Statement> statements_;
  std::vector<int> ends_;
};

}  // namespace varve::notebooks
