#pragma once
// TOML 1.0 files as a plain tree of values that know their line, so that a message can say where a wrong one stands.
// The only place that knows the library.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace varve {

inline constexpr std::uint64_t kMaxTomlBytes = 8 << 20;
inline constexpr std::size_t kMaxTomlDotsInLine =
    64;  // a.b.c.d… nests a table per dot, and a million of them would break the stack of any parser

struct TomlValue {
  enum class Kind : std::uint8_t { kString, kInteger, kFloat, kBoolean, kTime, kArray, kTable };
  Kind kind = Kind::kTable;
  std::uint32_t line = 0;  // from 1
  std::string text;        // kString; kTime: as the library writes it (2026-01-31, 2026-01-31T10:00:00Z)
  std::int64_t integer = 0;
  double number = 0;  // kFloat
  bool flag = false;
  std::vector<TomlValue> array;
  std::map<std::string, TomlValue, std::less<>> table;

  // Of a table; null if it has no such key.
  const TomlValue* find(std::string_view key) const;
  // A string, number or boolean as it would be written on a command line. Throws CorruptData for anything else; `name`
  // names the value.
  std::string scalar_text(std::string_view what, std::string_view name) const;
  bool operator==(const TomlValue&) const = default;
};

// The root table. Throws CorruptData "WHAT:LINE: why" for text that is no TOML or exceeds a limit above.
TomlValue parse_toml(std::string_view text, std::string_view what);

// Checked readers: throw CorruptData "WHAT:LINE: 'KEY' must be …" for another type. Where `required` is not said, an
// absent key gives the empty value.
std::string toml_place(std::string_view what, const TomlValue& value);  // "WHAT:LINE"
std::string toml_string(const TomlValue& table, std::string_view key, std::string_view what, bool required = false);
bool toml_flag(const TomlValue& table, std::string_view key, std::string_view what, bool absent = false);
// An array of strings; one string is an array of one.
std::vector<std::string> toml_strings(const TomlValue& table, std::string_view key, std::string_view what,
                                      bool required = false);
// The tables of [[key]]; a single [key] counts as one.
std::vector<const TomlValue*> toml_tables(const TomlValue& table, std::string_view key, std::string_view what);
// Throws CorruptData naming the first key of the table that is not in `known`: a misspelt key must not be a rule that
// silently does nothing.
void toml_only_keys(const TomlValue& table, const std::vector<std::string_view>& known, std::string_view what);

}  // namespace varve
