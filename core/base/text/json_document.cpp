#include "core/base/text/json_document.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/text/base64.h"
#include "core/base/text/safe_text.h"

namespace varve {
namespace {

using nlohmann::json;
using Type = json::value_t;

constexpr std::size_t kMaxShownName = 100;

// A name of strangers as part of an error.
std::string shown(std::string_view name) { return printable(name.substr(0, kMaxShownName)); }

// One look over the text before anything is built of it. What is no JSON at all is for the parser to say.
void check_limits(std::string_view text, const JsonLimits& limits, std::string_view what) {
  if (text.size() > limits.bytes) fail<Unsupported>("{}: {} bytes, the limit is {}", what, text.size(), limits.bytes);
  int depth = 0;
  std::size_t values = 1;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == '[' || c == '{' || c == ',') ++values;
    if (depth > limits.depth) fail<Unsupported>("{}: nested deeper than {}", what, limits.depth);
    if (values > limits.values) fail<Unsupported>("{}: more than {} JSON values", what, limits.values);
  }
}

json parse_without_repeats(std::string_view text, std::string_view what) {
  std::vector<std::set<std::string>> open;  // the members seen so far of the objects that are being read
  return json::parse(text, [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second)
      fail<CorruptData>("{}: the member \"{}\" stands there twice", what, shown(value.get<std::string>()));
    return true;
  });
}

}  // namespace

struct JsonValue::Document {
  json root;
  std::string what;
};

JsonValue JsonValue::parse(std::string_view text, std::string_view what, const JsonLimits& limits) {
  check_limits(text, limits, what);
  try {
    return {limits.repeated_members ? json::parse(text) : parse_without_repeats(text, what), what};
  } catch (const json::parse_error& error) {
    fail<CorruptData>("{}: no valid JSON at byte {}", what, error.byte);
  } catch (const json::exception&) {
    fail<CorruptData>("{}: JSON with a number out of range", what);
  }
}

JsonValue::JsonValue(json document, std::string_view what)
    : document_(std::make_shared<const Document>(Document{std::move(document), std::string(what)})),
      value_(&document_->root) {}

std::string JsonValue::where() const {
  return place_.empty() ? document_->what : fmt::format("{}: \"{}\"", document_->what, place_);
}

std::string JsonValue::place_of(std::string_view member) const {
  return place_.empty() ? shown(member) : place_ + '.' + shown(member);
}

void JsonValue::refuse(std::string_view why) const {
  throw CorruptData(fmt::format("{}{} {}", where(), place_.empty() ? ":" : "", why));
}

const json* JsonValue::of_type(std::uint8_t type, std::string_view name) const {
  if (value_ != nullptr && value_->type() != Type(type))
    refuse(fmt::format("must be {}, but is {}", name, value_->type_name()));
  return value_;
}

const json& JsonValue::raw() const {
  static const json null;
  return value_ != nullptr ? *value_ : null;
}

bool JsonValue::is_text() const { return raw().is_string(); }

bool JsonValue::is_object() const { return raw().is_object(); }

bool JsonValue::has(std::string_view name) const {
  const auto* object = of_type(std::uint8_t(Type::object), "an object");
  return object != nullptr && object->contains(name);
}

JsonValue JsonValue::maybe(std::string_view name) const {
  const auto* object = of_type(std::uint8_t(Type::object), "an object");
  const json* member = nullptr;
  if (object != nullptr)
    if (const auto found = object->find(name); found != object->end() && !found->is_null()) member = &*found;
  return {document_, member, place_of(name)};
}

JsonValue JsonValue::operator[](std::string_view name) const {
  auto member = maybe(name);
  if (!member) {
    const auto found = raw().find(name);
    if (found == raw().end()) member.refuse("is missing");
    member.value_ = &*found;
  }
  return member;
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::members() const {
  std::vector<std::pair<std::string, JsonValue>> members;
  if (const auto* object = of_type(std::uint8_t(Type::object), "an object"))
    for (const auto& [name, value] : object->items())
      members.emplace_back(name, JsonValue(document_, &value, place_of(name)));
  return members;
}

std::map<std::string, std::string> JsonValue::texts_by_name() const {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : members()) texts.emplace(name, value.text());
  return texts;
}

void JsonValue::only(std::initializer_list<std::string_view> names) const {
  for (const auto& [name, value] : members())
    if (std::ranges::find(names, name) == names.end()) value.refuse("is not known here");
}

std::vector<JsonValue> JsonValue::items(std::size_t limit) const {
  std::vector<JsonValue> items;
  const auto* list = of_type(std::uint8_t(Type::array), "an array");
  if (list == nullptr) return items;
  if (list->size() > limit) fail<Unsupported>("{}: {} items, the limit is {}", where(), list->size(), limit);
  items.reserve(list->size());
  for (const auto& item : *list)
    items.push_back(JsonValue(document_, &item, fmt::format("{}[{}]", place_, items.size())));
  return items;
}

std::vector<std::string> JsonValue::texts(std::size_t limit) const {
  std::vector<std::string> texts;
  for (const auto& item : items(limit)) texts.push_back(item.text());
  return texts;
}

std::string JsonValue::text(std::size_t limit_bytes) const {
  const auto* value = of_type(std::uint8_t(Type::string), "a string");
  if (value == nullptr) return {};
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > limit_bytes) fail<Unsupported>("{}: {} bytes, the limit is {}", where(), text.size(), limit_bytes);
  return text;
}

bool JsonValue::flag() const {
  const auto* value = of_type(std::uint8_t(Type::boolean), "true or false");
  return value != nullptr && value->get<bool>();
}

double JsonValue::real(double least, double most) const {
  if (value_ == nullptr) return 0;
  const auto number = value_->is_number() ? value_->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(number >= least && number <= most)) refuse(fmt::format("must be a number from {} to {}", least, most));
  return number;
}

std::uint64_t JsonValue::unsigned_number(std::uint64_t least, std::uint64_t most) const {
  if (value_ == nullptr) return 0;
  const auto number = value_->is_number_unsigned() ? value_->get<std::uint64_t>() : 0;
  if (!value_->is_number_unsigned() || number < least || number > most)
    refuse(fmt::format("must be a whole number from {} to {}", least, most));
  return number;
}

std::int64_t JsonValue::signed_number(std::int64_t least, std::int64_t most) const {
  if (value_ == nullptr) return 0;
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() || std::in_range<std::int64_t>(value_->get<std::uint64_t>()));
  const auto number = fits ? value_->get<std::int64_t>() : 0;
  if (!fits || number < least || number > most)
    refuse(fmt::format("must be a whole number from {} to {}", least, most));
  return number;
}

Digest JsonValue::digest() const {
  if (value_ == nullptr) return {};
  const auto written = text();
  if (const auto digest = Digest::try_parse(written)) return *digest;
  return Digest::parse(written, where());  // which says what is wrong
}

Bytes JsonValue::base64() const {
  const auto decoded = base64_decode(text());
  if (!decoded) refuse("is no base64");
  return to_bytes(varve::as_bytes(*decoded));
}

}  // namespace varve
