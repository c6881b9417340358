#include "core/base/text/safe_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/base/text/utf8.h"

namespace varve {
namespace {

// The one rule of what is not printed as it is.
bool is_hidden(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0xAD || code == 0x61C || code == 0x180E ||
         (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF || (code >= 0xFFF9 && code <= 0xFFFB) ||
         (code >= 0xE0000 && code <= 0xE0FFF);
}

struct Character {
  std::string_view bytes;
  char32_t code = 0;
  enum class Kind { kShown, kHidden, kNoText } kind = Kind::kNoText;
};

// Takes the first one off `text`, which is not empty.
Character take_character(std::string_view& text) {
  const auto length = utf8_length(text);
  const auto first = static_cast<unsigned char>(text[0]);
  Character character{.bytes = text.substr(0, std::max<std::size_t>(length, 1)), .code = first};
  if (length > 1) {
    character.code = first & (0x7Fu >> length);
    for (const char c : character.bytes.substr(1)) character.code = character.code << 6 | (c & 0x3F);
  }
  if (length > 0) character.kind = is_hidden(character.code) ? Character::Kind::kHidden : Character::Kind::kShown;
  text.remove_prefix(character.bytes.size());
  return character;
}

std::string escaped(std::string_view text, bool backslashes) {
  std::string out;
  while (!text.empty()) {
    const auto character = take_character(text);
    if (character.kind != Character::Kind::kShown) {
      for (const char c : character.bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      if (backslashes && character.code == '\\') out += '\\';
      out += character.bytes;
    }
  }
  return out;
}

}  // namespace

std::string printable(std::string_view name) { return escaped(name, true); }

std::string message_text(std::string_view message) {
  constexpr std::string_view kGoesOn = "\n  ";
  std::string text;
  for (auto end = message.find(kGoesOn);; end = message.find(kGoesOn)) {
    std::string line(message.substr(0, end));
    std::ranges::replace(line, '\n', ' ');
    text += escaped(line, false);
    if (end == message.npos) return text;
    text += kGoesOn;
    message.remove_prefix(end + kGoesOn.size());
  }
}

std::string json_name(const std::string& name) { return is_utf8(name) ? name : printable(name); }

std::string visible(std::string_view text, std::size_t limit) {
  std::vector<std::string> pieces;  // one character each
  bool too_long = false;
  const auto keep = limit + 1;
  // Of a huge name only the ends are read: the middle would be dropped anyway.
  std::string_view rest = text;
  std::string_view tail;
  if (text.size() > 16 * keep) {
    rest = text.substr(0, 8 * keep);
    tail = text.substr(text.size() - 8 * keep);
    while (!tail.empty() && (static_cast<unsigned char>(tail.front()) & 0xC0) == 0x80) tail.remove_prefix(1);
    too_long = true;
  }
  for (auto part : {rest, tail}) {
    while (!part.empty()) {
      const auto character = take_character(part);
      pieces.push_back(character.kind == Character::Kind::kShown ? std::string(character.bytes)
                       : character.kind == Character::Kind::kHidden
                           ? fmt::format("[U+{:04X}]", unsigned(character.code))
                           : "\uFFFD");
    }
  }
  too_long = too_long || pieces.size() > limit;
  std::string result;
  const auto head_count = too_long ? limit - limit / 3 : pieces.size();
  const auto tail_from = too_long ? pieces.size() - limit / 3 + 1 : pieces.size();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i < head_count || i >= tail_from) result += pieces[i];
    if (too_long && i == head_count) result += "…";
  }
  return result;
}

std::string single_line(std::string_view text, std::size_t max_bytes) {
  std::string line;
  while (!text.empty()) {
    const auto character = take_character(text);
    const std::string_view shown = character.kind == Character::Kind::kShown    ? character.bytes
                                   : character.kind == Character::Kind::kHidden ? " "
                                                                                : "\uFFFD";
    if (line.size() + shown.size() > max_bytes) break;
    line += shown;
  }
  return line;
}

}  // namespace varve
