#include "core/trust/internal/strict_json.h"

#include <algorithm>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/base64.h"
#include "core/base/errors.h"
#include "core/base/json_shape.h"

namespace varve::trust::internal {
namespace {

using nlohmann::json;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

json parse_strict_json(ByteView bytes, std::uint64_t limit_bytes, std::string_view what) {
  if (bytes.size() > limit_bytes) fail<Unsupported>("{}: {} bytes, the limit is {}", what, bytes.size(), limit_bytes);
  const auto text = as_text(bytes);
  check_json_shape(text, kMaxStrictDepth, kMaxStrictValues, what);
  std::vector<std::set<std::string>> open;  // the members seen so far of the objects that are being read
  std::string twice;
  const auto on_event = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second && twice.empty())
      twice = value.get<std::string>();
    return true;
  };
  json document;
  try {
    document = json::parse(text, on_event);
  } catch (const json::parse_error& error) {
    fail<CorruptData>("{}: no valid JSON at byte {}", what, error.byte);
  } catch (const json::exception&) {
    fail<CorruptData>("{}: JSON with a number out of range", what);
  }
  if (!twice.empty()) fail<CorruptData>("{}: the member \"{:.60}\" stands there twice", what, twice);
  if (!document.is_object()) fail<CorruptData>("{}: a JSON {} where an object is expected", what, document.type_name());
  return document;
}

void check_members(const json& value, std::initializer_list<std::string_view> required,
                   std::initializer_list<std::string_view> optional, std::string_view what) {
  if (!value.is_object()) fail<CorruptData>("{}: a JSON {} where an object is expected", what, value.type_name());
  for (const auto name : required)
    if (!value.contains(name)) fail<CorruptData>("{}: \"{}\" is missing", what, name);
  for (const auto& [name, member] : value.items())
    if (!is_one_of(name, required) && !is_one_of(name, optional))
      fail<CorruptData>("{}: \"{:.60}\" is not known here", what, name);
}

std::string text_member(const json& object, std::string_view name, std::string_view what) {
  const auto found = object.find(name);
  if (found == object.end()) return {};
  if (!found->is_string()) fail<CorruptData>("{}: \"{}\" must be a string", what, name);
  return found->get<std::string>();
}

Bytes base64_member(const json& object, std::string_view name, std::string_view what) {
  const auto decoded = base64_decode(text_member(object, name, what));
  if (!decoded) fail<CorruptData>("{}: \"{}\" is no base64", what, name);
  return to_bytes(as_bytes(*decoded));
}

}  // namespace varve::trust::internal
