#include "indexer/known_pins.h"

#include "core/base/errors.h"
#include "core/base/file.h"

namespace varve::indexer {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxFileBytes = 4 * 1024 * 1024;

}  // namespace

KnownPins::KnownPins(const std::filesystem::path& root) : file_(root / "pins.json") {
  if (const auto bytes = read_file_if_there(file_, kMaxFileBytes)) {
    document_ = json::parse(as_text(*bytes), nullptr, false);
    if (!document_.is_object()) fail<CorruptData>("{}: it is no JSON object; move it away to start anew", file_.string());
  }
}

std::vector<std::string> KnownPins::places() const {
  std::vector<std::string> names;
  const auto found = document_.find("places");
  if (found == document_.end() || !found->is_object()) return names;
  for (const auto& [place, digests] : found->items()) names.push_back(place);
  return names;
}

std::vector<std::string> KnownPins::pins_of(const std::string& place) const {
  const auto path = json::json_pointer("/places") / place;
  return document_.contains(path) && document_.at(path).is_array() ? document_.at(path).get<std::vector<std::string>>() : std::vector<std::string>();
}

void KnownPins::remember(const std::string& place, const std::vector<Pin>& pins) {
  auto digests = json::array();
  for (const auto& pin : pins) digests.push_back(pin.image.digest.to_string());
  document_["places"][place] = std::move(digests);
  std::filesystem::create_directories(file_.parent_path());
  write_file_atomically(file_, as_bytes(document_.dump(1)));
}

}  // namespace varve::indexer
