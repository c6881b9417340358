#include "fuse/control/control_protocol.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "core/base/error_text.h"
#include "core/base/errors.h"
#include "core/base/text/base64.h"
#include "core/oci/reference.h"

namespace varve {

void to_json(nlohmann::json& to, const Digest& digest) { to = digest.to_string(); }

void from_json(const nlohmann::json& from, Digest& digest) {
  digest = Digest::parse(from.get<std::string>(), "control message");
}

}  // namespace varve

namespace varve::fuse {
namespace {

using nlohmann::json;

// Fractions are seconds here. What others would become in a field of whole numbers is undefined: the library converts
// them without a look.
void refuse_odd_fractions(const json& value, std::string_view what) {
  if (value.is_number_float() && !(value.get<double>() >= 0 && value.get<double>() < 0x1p31))
    fail<CorruptData>("{}: {} is no number of seconds", what, value.get<double>());
  if (value.is_structured())
    for (const auto& member : value) refuse_odd_fractions(member, what);
}

std::filesystem::path absolute_or_empty(const std::filesystem::path& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal();
}

// The daemon may have been started from another environment than the command's.
std::filesystem::path authfile_of_environment() {
  for (const auto& [variable, suffix] :
       {std::pair{"REGISTRY_AUTH_FILE", ""}, std::pair{"DOCKER_CONFIG", "config.json"}}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    auto path = absolute_or_empty(value);
    if (*suffix != '\0') path /= suffix;
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path;
  }
  return {};
}

}  // namespace

std::string_view to_string(MountMode mode) {
  switch (mode) {
    case MountMode::kAuto:
      return "auto";
    case MountMode::kKernel:
      return "kernel";
    case MountMode::kFuse:
      return "fuse";
  }
  return "auto";
}

MountMode parse_mount_mode(std::string_view text) {
  for (const auto mode : {MountMode::kAuto, MountMode::kKernel, MountMode::kFuse}) {
    if (to_string(mode) == text) return mode;
  }
  fail<UsageError>("unknown mode {:?}: auto, kernel or fuse", text);
}

ImageSpec ImageSpec::from_user(const std::string& reference, const std::string& platform,
                               const oci::RegistryOptions& registry) {
  ImageSpec spec{.reference = oci::Reference::parse(reference).to_string(), .platform = platform, .registry = registry};
  spec.registry.authfile = registry.authfile.empty() ? authfile_of_environment() : absolute_or_empty(registry.authfile);
  spec.registry.ca_file = absolute_or_empty(registry.ca_file);
  for (auto& dir : spec.registry.mirrors.hosts_dirs) dir = absolute_or_empty(dir);
  spec.registry.mirrors.registries_conf = absolute_or_empty(registry.mirrors.registries_conf);
  for (auto& place : spec.registry.index_from) place = oci::Reference::parse(place).to_string();
  return spec;
}

std::optional<std::string> LineSocket::read_line(int timeout_ms) {
  timed_out_ = false;
  std::size_t searched = 0;
  while (true) {
    if (const auto end = pending_.find('\n', searched); end != std::string::npos) {
      auto line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    searched = pending_.size();
    if (searched > max_line_bytes_) fail<Unsupported>("control message of more than {} bytes", max_line_bytes_);
    if (timeout_ms >= 0) {
      pollfd wait{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      const int ready = ::poll(&wait, 1, timeout_ms);
      if (ready == 0 || (ready < 0 && errno == EINTR)) {
        timed_out_ = true;
        return std::nullopt;
      }
    }
    std::array<char, 16384> buffer;
    const auto n = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == ECONNRESET) return std::nullopt;
    if (n < 0) fail_errno("read from the control socket");
    if (n == 0) return std::nullopt;
    pending_.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

void LineSocket::write_line(const std::string& line) {
  const auto text = line + '\n';
  for (std::size_t sent = 0; sent < text.size();) {
    const auto n = ::send(socket_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("write to the control socket");
    sent += static_cast<std::size_t>(n);
  }
}

JsonValue parse_control_line(std::string_view line, std::string_view what) {
  auto value = JsonValue::parse(
      line, what, {.bytes = kMaxAnswerBytes, .depth = kMaxControlJsonDepth, .values = 3 * kMaxMessageRanges});
  refuse_odd_fractions(value.raw(), what);
  return value;
}

json error_to_json(const std::exception& error) {
  json result{{"message", error_text(error)}};
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    // It already ends with the system's text, which the other side adds again.
    auto text = error_text(error);
    const auto suffix = ": " + system->code().message();
    if (text.ends_with(suffix)) text.resize(text.size() - suffix.size());
    return {{"message", text}, {"kind", "system"}, {"errno", system->code().value()}};
  }
  const auto is = [&]<typename E>(E*) { return dynamic_cast<const E*>(&error) != nullptr; };
  result["kind"] = is(static_cast<UsageError*>(nullptr))       ? "usage"
                   : is(static_cast<NotFound*>(nullptr))       ? "not-found"
                   : is(static_cast<CorruptData*>(nullptr))    ? "corrupt"
                   : is(static_cast<Unsupported*>(nullptr))    ? "unsupported"
                   : is(static_cast<TemporaryError*>(nullptr)) ? "temporary"
                   : is(static_cast<Cancelled*>(nullptr))      ? "cancelled"
                                                               : "error";
  return result;
}

void throw_from_json(const JsonValue& error) {
  const auto message = error["message"].text();
  const auto kind = error["kind"].text();
  if (kind == "system") throw std::system_error(error["errno"].number<int>(), std::generic_category(), message);
  if (kind == "usage") throw UsageError(message);
  if (kind == "not-found") throw NotFound(message);
  if (kind == "corrupt") throw CorruptData(message);
  if (kind == "unsupported") throw Unsupported(message);
  if (kind == "temporary") throw TemporaryError(message);
  if (kind == "cancelled") throw Cancelled(message);
  throw Error(message);
}

json recording_to_json(ByteView profile) { return {{"profile", base64_encode(as_text(profile))}}; }

void to_json(json& to, MountMode mode) { to = to_string(mode); }

void from_json(const json& from, MountMode& mode) { mode = parse_mount_mode(from.get<std::string>()); }

ImageSpec read_image_spec(const JsonValue& from) {
  refuse_odd_fractions(from.raw(), "image");  // in a record, too, which was no message
  auto spec = read_message<ImageSpec>(from);
  spec.registry.max_attempts = std::clamp(spec.registry.max_attempts, 1, 100);
  spec.registry.connect_timeout_ms = std::max(spec.registry.connect_timeout_ms, 1);
  spec.registry.stall_timeout_ms = std::max(spec.registry.stall_timeout_ms, 1);
  return spec;
}

void to_json(json& to, const LayerRanges& layer) {
  json numbers = json::array();
  for (const auto& range : layer.ranges) {
    numbers.push_back(range.offset);
    numbers.push_back(range.length);
  }
  to = {{"layer", layer.layer}, {"ranges", std::move(numbers)}};
}

std::vector<LayerRanges> read_layer_ranges(const JsonValue& from) {
  std::vector<LayerRanges> layers;
  std::size_t count = 0;
  for (const auto& entry : from.items()) {
    auto& layer = layers.emplace_back(LayerRanges{.layer = entry["layer"].digest(), .ranges = {}});
    const auto numbers = read_message<std::vector<std::uint64_t>>(entry["ranges"]);
    count += numbers.size() / 2;
    if (numbers.size() % 2 != 0 || count > kMaxMessageRanges) entry["ranges"].refuse("cannot be read");
    for (std::size_t i = 0; i < numbers.size(); i += 2)
      layer.ranges.push_back({.offset = numbers[i], .length = numbers[i + 1]});
  }
  return layers;
}

}  // namespace varve::fuse
