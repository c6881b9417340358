#include "analyzer/usage/internal/clean_text.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace varve::usage {
namespace {

using nlohmann::json;

std::string dump(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace); }

template <typename Item>
std::vector<Item> parse_list(const std::string& text, json::value_t wanted) {
  std::vector<Item> items;
  const auto document = json::parse(text, nullptr, false);
  if (!document.is_array()) return items;
  for (const auto& item : document)
    if (item.type() == wanted) items.push_back(item.get<Item>());
  return items;
}

}  // namespace

std::string clean_text(std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c > 0; });
  if (plain) return std::string(text);
  auto clean = json::parse(dump(json(std::string(text)))).get<std::string>();
  std::replace(clean.begin(), clean.end(), '\0', '?');
  return clean;
}

std::string list_text(const std::vector<std::string>& items) {
  std::vector<std::string> clean;
  for (const auto& item : items) clean.push_back(clean_text(item));
  return dump(json(clean));
}

std::vector<std::string> parse_texts(const std::string& text) {
  return parse_list<std::string>(text, json::value_t::string);
}

std::string list_text(const std::vector<std::uint32_t>& items) { return dump(json(items)); }

std::vector<std::uint32_t> parse_numbers(const std::string& text) {
  return parse_list<std::uint32_t>(text, json::value_t::number_unsigned);
}

}  // namespace varve::usage
