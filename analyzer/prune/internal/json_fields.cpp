#include "analyzer/prune/internal/json_fields.h"

#include <algorithm>

#include "analyzer/report/text.h"
#include "analyzer/report/window.h"
#include "core/base/errors.h"
#include "core/base/json_shape.h"

namespace varve::prune::internal {
using nlohmann::json;

json parse_document(std::string_view text, std::size_t limit_bytes, std::string_view what) {
  if (text.size() > limit_bytes) fail<Unsupported>("{}: {} bytes, the limit is {}", what, text.size(), limit_bytes);
  check_json_shape(text, kMaxDocumentDepth, kMaxDocumentValues, what);
  json document;
  try {
    document = json::parse(text);
  } catch (const json::parse_error& error) {
    fail<CorruptData>("{}: not JSON at byte {}", what, error.byte);
  }
  if (!document.is_object()) fail<CorruptData>("{}: not a JSON object", what);
  return document;
}

Fields::Fields(const json& object, std::string what, std::string path)
    : object_(object), what_(std::move(what)), path_(std::move(path)) {
  if (!object_.is_object()) fail<CorruptData>("{}: \"{}\" is not an object but {}", what_, path_, object_.type_name());
}

std::string Fields::place(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

void Fields::refuse(std::string_view name, std::string_view why) const {
  fail<CorruptData>("{}: \"{}\" {}", what_, place(name), why);
}

void Fields::only(std::initializer_list<std::string_view> names) const {
  for (const auto& [name, value] : object_.items()) {
    if (std::ranges::find(names, name) == names.end())
      refuse(report::visible(name, 60), "is no field that is known here");
  }
}

const json& Fields::member(std::string_view name) const {
  const auto found = object_.find(name);
  if (found == object_.end()) refuse(name, "is missing");
  return *found;
}

std::string Fields::text(std::string_view name, std::size_t limit) const {
  const auto& value = member(name);
  if (!value.is_string()) refuse(name, fmt::format("is not a text but {}", value.type_name()));
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() > limit) refuse(name, fmt::format("has {} bytes, the limit is {}", text.size(), limit));
  return text;
}

std::uint64_t Fields::number(std::string_view name) const {
  const auto& value = member(name);
  if (!value.is_number_unsigned()) refuse(name, "is not a whole number from 0");
  return value.get<std::uint64_t>();
}

double Fields::real(std::string_view name, double least, double most) const {
  const auto& value = member(name);
  if (!value.is_number()) refuse(name, fmt::format("is not a number but {}", value.type_name()));
  const auto number = value.get<double>();
  if (!(number >= least && number <= most)) refuse(name, fmt::format("is not from {} to {}", least, most));
  return number;
}

bool Fields::flag(std::string_view name) const {
  const auto& value = member(name);
  if (!value.is_boolean()) refuse(name, "is neither true nor false");
  return value.get<bool>();
}

std::int32_t Fields::day(std::string_view name) const {
  if (member(name).is_null()) return 0;
  const auto day = text(name, 32);
  try {
    return report::parse_window(day + ".." + day, 0).first;
  } catch (const UsageError&) {
    refuse(name, "is not a day like 2026-11-21");
  }
}

const json& Fields::list(std::string_view name) const {
  const auto& value = member(name);
  if (!value.is_array()) refuse(name, fmt::format("is not a list but {}", value.type_name()));
  if (value.size() > kMaxListItems)
    refuse(name, fmt::format("has {} items, the limit is {}", value.size(), kMaxListItems));
  return value;
}

std::vector<std::string> Fields::texts(std::string_view name) const {
  std::vector<std::string> texts;
  for (const auto& value : list(name)) {
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kMaxText)
      refuse(fmt::format("{}[{}]", name, texts.size()), "is not a text");
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

std::map<std::string, std::string> Fields::text_map(std::string_view name) const {
  std::map<std::string, std::string> texts;
  const auto inside = object(name);
  for (const auto& [key, value] : member(name).items()) texts[key] = inside.text(key);
  return texts;
}

Fields Fields::object(std::string_view name) const { return {member(name), what_, place(name)}; }

void Fields::each(std::string_view name, const std::function<void(const Fields&)>& use) const {
  std::size_t number = 0;
  for (const auto& value : list(name)) use(Fields(value, what_, place(fmt::format("{}[{}]", name, number++))));
}

json day_value(std::int32_t day) { return day == 0 ? json(nullptr) : json(report::day_text(day)); }

}  // namespace varve::prune::internal
