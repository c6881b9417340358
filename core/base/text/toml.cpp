#include "core/base/text/toml.h"

#include <algorithm>
#include <sstream>

#include <toml++/toml.h>

#include "core/base/errors.h"

namespace varve {
namespace {

// What the library is not asked to judge: bytes that TOML has nowhere (toml++ 3.3 goes on behind a NUL in a key where
// its own checks are compiled out), and depth.
void check_bytes(std::string_view text, std::string_view what) {
  std::size_t dots = 0, line = 1;
  for (const char c : text) {
    if (c == '\n') {
      dots = 0;
      ++line;
    } else if ((static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\r') || c == 0x7F) {
      fail<CorruptData>("{}:{}: a control character ({})", what, line, int(c));
    } else if (c == '.' && ++dots > kMaxTomlDotsInLine) {
      fail<CorruptData>("{}:{}: more than {} dots in one line", what, line, kMaxTomlDotsInLine);
    }
  }
}

// Not part of fill(), whose frame must be small, without values of its own: documents may nest some thousand levels
// deep.
[[gnu::noinline]] std::string time_text(const toml::node& node) {
  std::ostringstream text;
  node.visit([&](const auto& one) {
    if constexpr (toml::is_date<decltype(one)> || toml::is_time<decltype(one)> || toml::is_date_time<decltype(one)>)
      text << one.get();
  });
  return text.str();
}

void fill(const toml::node& node, TomlValue& value) {
  value.line = node.source().begin.line;
  if (const auto* text = node.as_string()) {
    value.kind = TomlValue::Kind::kString;
    value.text = text->get();
  } else if (const auto* integer = node.as_integer()) {
    value.kind = TomlValue::Kind::kInteger;
    value.integer = integer->get();
  } else if (const auto* number = node.as_floating_point()) {
    value.kind = TomlValue::Kind::kFloat;
    value.number = number->get();
  } else if (const auto* flag = node.as_boolean()) {
    value.kind = TomlValue::Kind::kBoolean;
    value.flag = flag->get();
  } else if (const auto* array = node.as_array()) {
    value.kind = TomlValue::Kind::kArray;
    for (const auto& element : *array) fill(element, value.array.emplace_back());
  } else if (const auto* table = node.as_table()) {
    value.kind = TomlValue::Kind::kTable;
    for (const auto& [key, inner] : *table) fill(inner, value.table.try_emplace(std::string(key.str())).first->second);
  } else {
    value.kind = TomlValue::Kind::kTime;
    value.text = time_text(node);
  }
}

const TomlValue* find_in(const TomlValue& table, std::string_view key, std::string_view what, bool required) {
  const auto* value = table.find(key);
  if (value == nullptr && required) fail<CorruptData>("{}: '{}' is missing", toml_place(what, table), key);
  return value;
}

}  // namespace

const TomlValue* TomlValue::find(std::string_view key) const {
  const auto found = table.find(key);
  return found == table.end() ? nullptr : &found->second;
}

std::string TomlValue::scalar_text(std::string_view what, std::string_view name) const {
  switch (kind) {
    case Kind::kString:
      return text;
    case Kind::kInteger:
      return std::to_string(integer);
    case Kind::kFloat:
      return fmt::format("{}", number);
    case Kind::kBoolean:
      return flag ? "true" : "false";
    default:
      fail<CorruptData>("{}: '{}' must be a string, a number, a boolean or an array of them", toml_place(what, *this),
                        name);
  }
}

TomlValue parse_toml(std::string_view text, std::string_view what) {
  if (text.size() > kMaxTomlBytes) fail<CorruptData>("{}: more than {} bytes", what, kMaxTomlBytes);
  check_bytes(text, what);
  try {
    TomlValue value;
    fill(toml::parse(text), value);
    return value;
  } catch (const toml::parse_error& error) {
    fail<CorruptData>("{}:{}: {}", what, error.source().begin.line, error.description());
  }
}

std::string toml_place(std::string_view what, const TomlValue& value) {
  return fmt::format("{}:{}", what, std::max(value.line, 1u));
}

std::string toml_string(const TomlValue& table, std::string_view key, std::string_view what, bool required) {
  const auto* value = find_in(table, key, what, required);
  if (value == nullptr) return {};
  if (value->kind != TomlValue::Kind::kString)
    fail<CorruptData>("{}: '{}' must be a string", toml_place(what, *value), key);
  return value->text;
}

bool toml_flag(const TomlValue& table, std::string_view key, std::string_view what, bool absent) {
  const auto* value = table.find(key);
  if (value == nullptr) return absent;
  if (value->kind != TomlValue::Kind::kBoolean)
    fail<CorruptData>("{}: '{}' must be true or false", toml_place(what, *value), key);
  return value->flag;
}

std::vector<std::string> toml_strings(const TomlValue& table, std::string_view key, std::string_view what,
                                      bool required) {
  const auto* value = find_in(table, key, what, required);
  if (value == nullptr) return {};
  if (value->kind == TomlValue::Kind::kString) return {value->text};
  if (value->kind != TomlValue::Kind::kArray)
    fail<CorruptData>("{}: '{}' must be an array of strings", toml_place(what, *value), key);
  std::vector<std::string> texts;
  for (const auto& element : value->array) {
    if (element.kind != TomlValue::Kind::kString)
      fail<CorruptData>("{}: '{}' must hold strings only", toml_place(what, element), key);
    texts.push_back(element.text);
  }
  return texts;
}

std::vector<const TomlValue*> toml_tables(const TomlValue& table, std::string_view key, std::string_view what) {
  const auto* value = table.find(key);
  if (value == nullptr) return {};
  if (value->kind == TomlValue::Kind::kTable) return {value};
  if (value->kind != TomlValue::Kind::kArray)
    fail<CorruptData>("{}: '{}' must be tables: [[{}]]", toml_place(what, *value), key, key);
  std::vector<const TomlValue*> tables;
  for (const auto& element : value->array) {
    if (element.kind != TomlValue::Kind::kTable)
      fail<CorruptData>("{}: '{}' must be tables: [[{}]]", toml_place(what, element), key, key);
    tables.push_back(&element);
  }
  return tables;
}

void toml_only_keys(const TomlValue& table, const std::vector<std::string_view>& known, std::string_view what) {
  for (const auto& [key, value] : table.table)
    if (std::ranges::find(known, key) == known.end())
      fail<CorruptData>("{}: '{:.100}' is not known here", toml_place(what, value), key);
}

}  // namespace varve
