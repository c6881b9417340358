#include "analyzer/notebooks/internal/gpu_hints.h"

#include <algorithm>
#include <cstdlib>

#include "analyzer/notebooks/internal/gpu_rules.h"
#include "analyzer/notebooks/internal/source_chars.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"

namespace varve::notebooks {
namespace {

constexpr std::size_t kMaxHintedBytes = 4u << 20;  // of code: rules look at pairs of lines
constexpr std::size_t kMaxHints = 1000;
constexpr int kMaxStatementsOfHints = 5000;

// 7 of "meta-llama/Llama-2-7b-hf"; 0 if the name tells no size, or that it is quantised.
double billions_in(std::string_view literal) {
  if (literal.size() < 3 || literal.size() > 200 || (literal.front() != '"' && literal.front() != '\'')) return 0;
  const auto name = to_lower(literal);
  for (const std::string_view quantised :
       {"gptq", "awq", "4bit", "8bit", "int4", "int8", "fp8", "gguf", "bnb", "nf4", "fp4", "bf16", "fp16"}) {
    if (name.find(quantised) != std::string::npos) return 0;
  }
  for (std::size_t i = 1; i + 1 < name.size(); ++i) {
    if (name[i] != 'b' || !is_digit(name[i - 1]) || is_word(name[i + 1])) continue;
    auto start = i;
    while (start > 0 && (is_digit(name[start - 1]) || name[start - 1] == '.')) --start;
    if (start > 0 && is_word(name[start - 1])) continue;
    return std::strtod(name.c_str() + start, nullptr);
  }
  return 0;
}

bool imports_any(const Findings& findings, std::initializer_list<std::string_view> modules) {
  return std::any_of(findings.imports.begin(), findings.imports.end(), [&](const Import& found) {
    if (found.written_file || found.local) return false;
    return is_one_of(std::string_view(found.name).substr(0, found.name.find('.')), modules);
  });
}

}  // namespace

void Hints::add(int statement, std::string kind, std::string_view text) {
  const auto& at = code_[statement];
  findings_.hints.push_back({.kind = std::move(kind), .text = single_line(text), .cell = at.cell, .line = at.line});
}

bool Hints::full() const { return findings_.hints.size() >= kMaxHints; }

// AutoModelForCausalLM.from_pretrained("…-7b") with nothing said of its precision.
void check_transformers_statement(const HintedCode& code, int index, Hints& hints) {
  const auto& statement = code[index];
  const int at = statement.find({"AutoModelForCausalLM", ".", "from_pretrained", "("});
  if (at < 0 || static_cast<std::size_t>(at) + 4 >= statement.tokens.size()) return;
  for (const auto token : statement.tokens) {
    if (is_one_of(token, {"torch_dtype", "dtype", "load_in_8bit", "load_in_4bit", "quantization_config", "half",
                          "bfloat16", "float16", "*", "**", "gguf_file", "config"})) {
      return;
    }
  }
  const auto name = statement.tokens[static_cast<std::size_t>(at) + 4];
  const double billions = billions_in(name);
  if (billions < 1 || code.has("set_default_dtype")) return;
  hints.add(
      index, "large-model-in-float32",
      "a model of about " + std::string(name.substr(1, name.size() - 2)) +
          "'s size is loaded as float32 by Transformers before version 5; `torch_dtype=\"auto\"` halves its memory");
}

void add_gpu_hints(const std::vector<Cell>& cells, Findings& findings) {
  const bool torch = imports_any(findings, {"torch"});
  const bool transformers = imports_any(findings, {"transformers"});
  if (!torch && !transformers) return;
  std::size_t bytes = 0;
  for (const auto& cell : cells) bytes += cell.text.size();
  if (bytes > kMaxHintedBytes) return;
  const HintedCode code(cells);
  if (code.size() > kMaxStatementsOfHints) return;
  Hints hints(code, findings);
  for (int i = 0; torch && i < code.size() && !hints.full(); ++i) check_torch_statement(code, i, hints);
  if (torch) check_placement(code, hints);
  for (int i = 0; transformers && i < code.size() && !hints.full(); ++i) check_transformers_statement(code, i, hints);
  std::stable_sort(findings.hints.begin(), findings.hints.end(),
                   [](const Hint& a, const Hint& b) { return a.cell != b.cell ? a.cell < b.cell : a.line < b.line; });
}

}  // namespace varve::notebooks
