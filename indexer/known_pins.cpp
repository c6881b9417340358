#include "indexer/known_pins.h"

#include <sys/file.h>

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/json_document.h"

namespace varve::indexer {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::uint64_t kMaxFileBytes = 64 * 1024 * 1024;  // some full lists
constexpr std::string_view kLayout = "oci:";

bool is_same_place(const std::string& one, const std::string& other) {
  if (one == other) return true;
  if (!one.starts_with(kLayout) || !other.starts_with(kLayout)) return false;
  std::error_code none;
  return fs::equivalent(one.substr(kLayout.size()), other.substr(kLayout.size()), none);
}

// Older versions kept digests alone. The size says so: no manifest has 0 bytes.
std::vector<Pin> pins_in(const JsonValue& list, const std::string& what) {
  if (list.is_object()) return parse_pins(as_bytes(list.raw().dump()), what);
  std::vector<Pin> pins;
  for (const auto& digest : list.items()) {
    auto& pin = pins.emplace_back();
    pin.image.media_type = oci::kOciManifestType;
    pin.image.digest = digest.digest();
  }
  return pins;
}

}  // namespace

std::string place_of(oci::Reference reference) {
  reference.tag.reset();
  reference.digest.reset();
  auto text = reference.to_string();
  return reference.kind == oci::Reference::Kind::kLayout
             ? text
             : text.substr(0, text.rfind(':') > text.rfind('/') ? text.rfind(':') : text.npos);
}

UniqueFd KnownPins::lock(const fs::path& root) {
  fs::create_directories(root);
  auto file = open_file(root / "pins.lock", O_RDWR | O_CREAT);
  while (::flock(file.get(), LOCK_EX) != 0)
    if (errno != EINTR) fail_errno("lock {}", (root / "pins.lock").string());
  return file;
}

KnownPins::KnownPins(const fs::path& root) : file_(root / "pins.json") {
  if (const auto bytes = read_file_if_there(file_, kMaxFileBytes)) {
    document_ = json::parse(as_text(*bytes), nullptr, false);
    if (!document_.is_object())
      fail<CorruptData>("{}: it is no JSON object; move it away to start anew", file_.string());
  }
}

std::vector<std::string> KnownPins::places() const {
  std::vector<std::string> names;
  const auto found = document_.find("places");
  if (found == document_.end() || !found->is_object()) return names;
  for (const auto& [place, list] : found->items()) names.push_back(place);
  return names;
}

std::vector<Pin> KnownPins::pins_of(const std::string& place) const {
  std::vector<Pin> pins;
  for (const auto& [known, list] : JsonValue(document_, file_.string()).maybe("places").members()) {
    if (!is_same_place(known, place)) continue;
    auto more = pins_in(list, list.where());
    std::ranges::move(lost_pins(more, pins), std::back_inserter(pins));
  }
  return pins;
}

void KnownPins::remember(const std::string& place, const std::vector<Pin>& list, const std::vector<Pin>& taken_back) {
  auto known = lost_pins(lost_pins(pins_of(place), list), taken_back);
  known.insert(known.end(), list.begin(), list.end());
  for (const auto& name : places())
    if (is_same_place(name, place)) document_["places"].erase(name);
  document_["places"][place] = json::parse(list_of_pins(std::move(known)));
  fs::create_directories(file_.parent_path());
  write_file_atomically(file_, as_bytes(document_.dump(1)));
}

}  // namespace varve::indexer
