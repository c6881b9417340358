#include "core/oci/internal/blob_locations.h"

#include <ctime>

#include "core/oci/internal/http_headers.h"

namespace varve::oci::internal {
namespace {

constexpr std::size_t kMaxEntries = 4096;
constexpr std::chrono::seconds kEarlier{15};  // a range on its way must not see the end
constexpr std::chrono::hours kLongest{1};     // for URLs that do not say
// The year 2242; the clock's nanoseconds end in 2262.
constexpr std::uint64_t kMaxTime = std::uint64_t(1) << 33;

// "20250102T030405Z"
std::optional<std::uint64_t> parse_compact_time(const std::string& text) {
  std::tm time{};
  const char* end = ::strptime(text.c_str(), "%Y%m%dT%H%M%SZ", &time);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const auto seconds = ::timegm(&time);
  if (seconds < 0) return std::nullopt;
  return std::uint64_t(seconds);
}

}  // namespace

std::optional<std::chrono::system_clock::time_point> expiry_of(const Url& url) {
  using Clock = std::chrono::system_clock;
  constexpr std::uint64_t kMaxSeconds = 7 * 24 * 3600;
  for (const std::string prefix : {"X-Amz-", "X-Goog-"}) {
    const auto date = query_parameter(url.text, prefix + "Date");
    const auto lifetime = query_parameter(url.text, prefix + "Expires");
    if (!date || !lifetime) continue;
    const auto begin = parse_compact_time(*date);
    const auto seconds = parse_decimal(*lifetime);
    if (begin && *begin < kMaxTime && seconds && *seconds <= kMaxSeconds)
      return Clock::from_time_t(std::time_t(*begin + *seconds));
  }
  if (const auto expires = query_parameter(url.text, "Expires"))
    if (const auto epoch = parse_decimal(*expires); epoch && *epoch < kMaxTime)
      return Clock::from_time_t(std::time_t(*epoch));
  return std::nullopt;
}

BlobLocations::Lease BlobLocations::begin(const Digest& blob) {
  std::unique_lock lock(mutex_);
  if (entries_.size() > kMaxEntries)
    std::erase_if(entries_, [](const auto& item) { return item.second.state != State::kResolving; });
  changed_.wait(lock, [&] { return entries_[blob].state != State::kResolving; });
  auto& entry = entries_[blob];
  if (entry.state == State::kStorage && std::chrono::system_clock::now() >= entry.expires) entry = {};
  if (entry.state == State::kUnknown && !registry_answers_) {
    entry.state = State::kResolving;
    return {*this, blob, std::nullopt, true};
  }
  return {*this, blob, entry.url, false};
}

void BlobLocations::tell(const Digest& blob, State state, const Url* url) {
  {
    const std::lock_guard lock(mutex_);
    auto& entry = entries_[blob];
    entry.expires = std::chrono::system_clock::now() + kLongest;
    if (url != nullptr)
      if (const auto end = expiry_of(*url)) entry.expires = std::min(entry.expires, *end - kEarlier);
    if (state != State::kUnknown) registry_answers_ = state == State::kRegistry;
    entry.state = state;
    entry.url = url == nullptr ? std::nullopt : std::optional(*url);
  }
  changed_.notify_all();
}

void BlobLocations::forget(const Digest& blob, const std::optional<Url>& url) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(blob);
  if (found == entries_.end() || found->second.state == State::kResolving) return;
  const bool is_same =
      found->second.url.has_value() == url.has_value() && (!url || found->second.url->text == url->text);
  if (is_same) entries_.erase(found);
}

}  // namespace varve::oci::internal
