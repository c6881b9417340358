#include "analyzer/notebooks/internal/code_blocks.h"

#include <algorithm>
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

// What stands between the header's first word and its colon, over lines if it is in brackets.
std::string_view condition_of(std::string_view text, std::size_t word) {
  const char* const begin = text.data() + word;
  const char* const end = text.data() + std::min(text.size(), kMaxHeaderBytes);
  int brackets = 0;
  const char* at = begin;
  for (; at < end; ++at) {
    const char c = *at;
    if (c == '(' || c == '[' || c == '{') ++brackets;
    if (c == ')' || c == ']' || c == '}') --brackets;
    if (brackets <= 0 && (c == ':' || (is_newline(c) && at[-1] != '\\'))) break;
    if (c == '"' || c == '\'') {
      const char* stop = at + 1;
      while (stop < end && *stop != c && !is_newline(*stop)) ++stop;
      if (stop < end && *stop == c) at = stop;
    }
  }
  return trimmed(between(begin, std::max(begin, at)));
}

bool names_failed_import(std::string_view condition) {
  static constexpr std::array<std::string_view, 4> kCaught = {"ImportError", "ModuleNotFoundError", "Exception",
                                                              "BaseException"};
  return std::any_of(kCaught.begin(), kCaught.end(), [&](auto name) { return holds_word(condition, name); });
}

bool catches_failed_imports(std::string_view handler) {
  const auto condition = condition_of(handler, std::string_view("except").size());
  return condition.empty() || names_failed_import(condition);
}

bool always_holds(std::string_view header) {
  const auto condition = condition_of(header, std::string_view("if").size());
  return condition == "True" || condition == "1" || holds_word(condition, "__name__");
}

bool suppresses_failed_imports(std::string_view header) {
  const auto condition = condition_of(header, std::string_view("with").size());
  return holds_word(condition, "suppress") && names_failed_import(condition);
}

}  // namespace

void CodeBlocks::begin_line(int indent, std::string_view word, std::string_view text, std::vector<Import>& imports) {
  while (!blocks_.empty() && blocks_.back().indent > indent) blocks_.pop_back();
  if (!blocks_.empty() && blocks_.back().indent == indent) {
    if (continue_block(word, text, imports)) return;
    blocks_.pop_back();
  }
  if (!word.empty()) open_block(indent, word, text, imports.size());
}

// A branch of the block at the top: true if `word` begins one.
bool CodeBlocks::continue_block(std::string_view word, std::string_view text, std::vector<Import>& imports) {
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
  if (!top.caught && catches_failed_imports(text)) {
    top.caught = true;
    for (std::size_t i = top.first_import; i < top.end_import; ++i) {
      if (imports[i].kind != ImportKind::kImport) continue;
      imports[i].kind = ImportKind::kOptional;
      imports[i].tried = true;
    }
  }
  top.optional = true;
  return true;
}

void CodeBlocks::open_block(int indent, std::string_view word, std::string_view text, std::size_t imports) {
  if (blocks_.size() >= kMaxBlocks) return;
  Block block{.indent = indent,
              .kind = Kind::kOther,
              .optional = optional(),
              .in_function = in_function() || word == "def",
              .first_import = imports};
  if (word == "try") {
    block.kind = Kind::kTry;
  } else if (word == "if") {
    block.kind = Kind::kIf;
    block.optional |= !always_holds(text);
  } else if (word == "with") {
    block.optional |= suppresses_failed_imports(text);
  } else if (word == "elif" || word == "else" || word == "except" || word == "case") {
    block.optional = true;
  }
  blocks_.push_back(block);
}

}  // namespace varve::notebooks
