#include "analyzer/notebooks/internal/hinted_code.h"

#include <algorithm>

#include "analyzer/notebooks/internal/source_chars.h"

namespace varve::notebooks {
namespace {

constexpr int kMaxModels = 16;

}  // namespace

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_name(std::string_view token) { return !token.empty() && is_word(token.front()) && !is_digit(token.front()); }

std::string quoted(std::string_view name) { return "`" + std::string(name) + "`"; }

bool calls(const Statement& statement, std::string_view name) {
  for (int at = statement.find({name, "("}); at >= 0; at = statement.find({name, "("}, at + 1)) {
    if (at == 0 || (statement.tokens[static_cast<std::size_t>(at) - 1] != "." &&
                    statement.tokens[static_cast<std::size_t>(at) - 1] != "def"))
      return true;
  }
  return false;
}

HintedCode::HintedCode(const std::vector<Cell>& cells) : StatementList(cells) {
  for (const auto& statement : all()) find_models(statement.tokens);
}

void HintedCode::find_models(const std::vector<std::string_view>& tokens) {
  for (std::size_t i = 0; i + 3 < tokens.size(); ++i) {
    if (tokens[i + 1] != "." || tokens[i + 3] != "(" || !is_name(tokens[i])) continue;
    if (i > 0 && tokens[i - 1] == ".") continue;
    if (is_one_of(tokens[i + 2], {"parameters", "eval", "train"}) && models_.size() < kMaxModels)
      models_.insert(tokens[i]);
    if (tokens[i + 2] == "parameters") optimized_.insert(tokens[i]);
    if (is_one_of(tokens[i + 2], {"to", "cuda"})) moved_.insert(tokens[i]);
  }
}

bool HintedCode::block_has(int block, std::initializer_list<std::string_view> sequence) const {
  for (int i = block; i < block_end(block); ++i) {
    if ((*this)[i].find(sequence) >= 0) return true;
  }
  return false;
}

bool HintedCode::has_sequence(std::initializer_list<std::string_view> sequence) const {
  return std::any_of(all().begin(), all().end(), [&](const Statement& s) { return s.find(sequence) >= 0; });
}

bool HintedCode::without_graph(int index) const {
  for (int at = (*this)[index].parent; at >= 0; at = (*this)[at].parent) {
    const auto& header = (*this)[at];
    if (header.word() == "with" &&
        (header.has("no_grad") || header.has("inference_mode") || header.has("set_grad_enabled")))
      return true;
    if (header.word() == "def" && at > 0 && (*this)[at - 1].word() == "@" &&
        ((*this)[at - 1].has("no_grad") || (*this)[at - 1].has("inference_mode"))) {
      return true;
    }
  }
  return false;
}

bool HintedCode::cell_has_no_grad(std::uint32_t cell) const {
  return std::any_of(all().begin(), all().end(), [&](const Statement& s) {
    return s.cell == cell && (s.has("no_grad") || s.has("inference_mode") || s.has("grad"));
  });
}

bool HintedCode::made_plain(int block, std::string_view name) const {
  const int end = block < 0 ? size() : block_end(block);
  for (int i = std::max(block, 0); i < end; ++i) {
    const auto& tokens = (*this)[i].tokens;
    if (tokens.size() < 3 || tokens[0] != name || tokens[1] != "=") continue;
    if (std::any_of(tokens.begin() + 2, tokens.end(), [](auto t) {
          return is_one_of(t, {"item", "detach", "float", "numpy", "cpu"});
        }))
      return true;
  }
  return false;
}

}  // namespace varve::notebooks
