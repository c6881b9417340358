#include "analyzer/notebooks/internal/code_blocks.h"

#include <array>

#include "analyzer/notebooks/internal/source_chars.h"

namespace varve::notebooks {

namespace {

constexpr std::size_t kMaxBlocks = 256;
constexpr std::size_t kMaxHeaderBytes = 4096;  // conditions are looked at no further

bool holds_word(std::string_view text, std::string_view word) {
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; ++at) {
    const bool begins = at == 0 || !is_word(text[at - 1]);
    const bool ends = at + word.size() == text.size() || !is_word(text[at + word.size()]);
    if (begins && ends) return true;
  }
  return false;
}

bool catches_failed_imports(std::string_view handler) {
  const auto what = trimmed(handler.substr(std::string_view("except").size()));
  if (what.starts_with(':')) return true;
  static constexpr std::array<std::string_view, 4> kCaught = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"};
  for (const auto name : kCaught) {
    if (holds_word(what.substr(0, kMaxHeaderBytes), name)) return true;
  }
  return false;
}

bool always_holds(std::string_view condition) {
  const auto what = trimmed(condition.substr(2));
  return holds_word(what.substr(0, 80), "__name__") || what.starts_with("True:") || what.starts_with("1:");
}

bool suppresses_failed_imports(std::string_view header) {
  return holds_word(header.substr(0, kMaxHeaderBytes), "suppress") && catches_failed_imports(header);
}

}  // namespace

void CodeBlocks::begin_line(int indent, std::string_view word, std::string_view line, std::vector<Import>& imports) {
  while (!blocks_.empty() && blocks_.back().indent > indent) blocks_.pop_back();
  if (!blocks_.empty() && blocks_.back().indent == indent) {
    if (continue_block(word, line, imports)) return;
    blocks_.pop_back();
  }
  if (!word.empty()) open_block(indent, word, line, imports.size());
}

// A branch of the block at the top: true if `word` begins one.
bool CodeBlocks::continue_block(std::string_view word, std::string_view line, std::vector<Import>& imports) {
  Block& top = blocks_.back();
  const bool outer = blocks_.size() > 1 && blocks_[blocks_.size() - 2].optional;
  if (word == "elif" || (word == "else" && top.kind == Kind::kIf)) {
    top.optional = true;
    return true;
  }
  if (word == "else") {
    top.optional = outer || top.caught;
  } else if (word == "finally") {
    top.optional = outer;
  } else if (word != "except") {
    return false;
  }
  if (top.kind != Kind::kTry) return true;
  if (!top.body_done) {
    top.body_done = true;
    top.end_import = imports.size();
  }
  if (word != "except") return true;
  if (!top.caught && catches_failed_imports(line)) {
    top.caught = true;
    for (std::size_t i = top.first_import; i < top.end_import; ++i) {
      if (imports[i].kind == ImportKind::kImport) imports[i].kind = ImportKind::kOptional;
    }
  }
  top.optional = true;
  return true;
}

void CodeBlocks::open_block(int indent, std::string_view word, std::string_view line, std::size_t imports) {
  if (blocks_.size() >= kMaxBlocks) return;
  Block block{.indent = indent, .kind = Kind::kOther, .optional = optional(), .first_import = imports};
  if (word == "try") {
    block.kind = Kind::kTry;
  } else if (word == "if") {
    block.kind = Kind::kIf;
    block.optional |= !always_holds(line);
  } else if (word == "with") {
    block.optional |= suppresses_failed_imports(line);
  } else if (word == "elif" || word == "else" || word == "except" || word == "case") {
    block.optional = true;
  }
  blocks_.push_back(block);
}

}  // namespace varve::notebooks
