#include "fuse/daemon/control_protocol.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "core/base/base64.h"
#include "core/base/errors.h"
#include "core/oci/reference.h"

namespace varve::fuse {
namespace {

using nlohmann::json;

template <typename T>
T field(const json& from, const char* name) {
  const auto found = from.find(name);
  if (found == from.end()) fail<CorruptData>("control message: no field {}", name);
  try {
    return found->get<T>();
  } catch (const json::exception&) {
    fail<CorruptData>("control message: field {} is of the wrong type", name);
  }
}

Digest digest_field(const json& from, const char* name) { return Digest::parse(field<std::string>(from, name), name); }

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

json parse_control_line(const std::string& line, std::string_view what) {
  try {
    return json::parse(line, [](int depth, json::parse_event_t, json&) {
      if (depth > kMaxControlJsonDepth)
        fail<CorruptData>("control message: nested deeper than {}", kMaxControlJsonDepth);
      return true;
    });
  } catch (const json::exception& error) {
    fail<CorruptData>("{}: {}", what, error.what());
  }
}

json error_to_json(const std::exception& error) {
  json result{{"message", error.what()}};
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    // what() already ends with the system's text, which the other side adds again.
    auto text = std::string(error.what());
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

void throw_from_json(const json& error) {
  const auto message = field<std::string>(error, "message");
  const auto kind = field<std::string>(error, "kind");
  if (kind == "system") throw std::system_error(field<int>(error, "errno"), std::generic_category(), message);
  if (kind == "usage") throw UsageError(message);
  if (kind == "not-found") throw NotFound(message);
  if (kind == "corrupt") throw CorruptData(message);
  if (kind == "unsupported") throw Unsupported(message);
  if (kind == "temporary") throw TemporaryError(message);
  if (kind == "cancelled") throw Cancelled(message);
  throw Error(message);
}

json to_json(const ImageSpec& spec) {
  return {{"reference", spec.reference},
          {"platform", spec.platform},
          {"authfile", spec.registry.authfile.string()},
          {"ca_file", spec.registry.ca_file.string()},
          {"plain_http", spec.registry.plain_http},
          {"referrers_api", spec.registry.referrers_api},
          {"max_attempts", spec.registry.max_attempts},
          {"connect_timeout_ms", spec.registry.connect_timeout_ms},
          {"stall_timeout_ms", spec.registry.stall_timeout_ms}};
}

ImageSpec image_spec_from_json(const json& from) {
  ImageSpec spec{.reference = field<std::string>(from, "reference"),
                 .platform = field<std::string>(from, "platform"),
                 .registry = {}};
  spec.registry.authfile = field<std::string>(from, "authfile");
  spec.registry.ca_file = field<std::string>(from, "ca_file");
  spec.registry.plain_http = field<bool>(from, "plain_http");
  spec.registry.referrers_api = field<bool>(from, "referrers_api");
  spec.registry.max_attempts = std::clamp(field<int>(from, "max_attempts"), 1, 100);
  spec.registry.connect_timeout_ms = std::max(field<int>(from, "connect_timeout_ms"), 1);
  spec.registry.stall_timeout_ms = std::max(field<int>(from, "stall_timeout_ms"), 1);
  return spec;
}

json to_json(const ImageStats& stats) {
  return {{"image", stats.image.to_string()},
          {"reference", stats.reference},
          {"image_stream_bytes", stats.image_stream_bytes},
          {"present_bytes", stats.present_bytes},
          {"cold_bytes", stats.cold_bytes},
          {"cold_present_bytes", stats.cold_present_bytes},
          {"fetched_bytes", stats.fetched_bytes},
          {"prefetched_bytes", stats.prefetched_bytes},
          {"requests", stats.requests},
          {"decoded_bytes", stats.decoded_bytes},
          {"layers", stats.layers},
          {"proved_layers", stats.proved_layers},
          {"fetching", stats.fetching},
          {"errors", stats.errors},
          {"last_error", stats.last_error}};
}

ImageStats image_stats_from_json(const json& from) {
  ImageStats stats;
  stats.image = digest_field(from, "image");
  stats.reference = field<std::string>(from, "reference");
  stats.image_stream_bytes = field<std::uint64_t>(from, "image_stream_bytes");
  stats.present_bytes = field<std::uint64_t>(from, "present_bytes");
  // A daemon of an earlier version knows nothing cold, and prefetches nothing.
  stats.cold_bytes = from.contains("cold_bytes") ? field<std::uint64_t>(from, "cold_bytes") : 0;
  stats.cold_present_bytes = from.contains("cold_present_bytes") ? field<std::uint64_t>(from, "cold_present_bytes") : 0;
  stats.fetched_bytes = field<std::uint64_t>(from, "fetched_bytes");
  stats.prefetched_bytes = from.contains("prefetched_bytes") ? field<std::uint64_t>(from, "prefetched_bytes") : 0;
  stats.requests = field<std::uint64_t>(from, "requests");
  stats.decoded_bytes = field<std::uint64_t>(from, "decoded_bytes");
  stats.layers = from.contains("layers") ? field<std::uint64_t>(from, "layers") : 0;
  stats.proved_layers = from.contains("proved_layers") ? field<std::uint64_t>(from, "proved_layers") : 0;
  stats.fetching = field<std::uint64_t>(from, "fetching");
  stats.errors = field<std::uint64_t>(from, "errors");
  stats.last_error = field<std::string>(from, "last_error");
  return stats;
}

json to_json(const DaemonStatus& status) {
  json mounts = json::array();
  for (const auto& mount : status.mounts) {
    auto entry = to_json(mount.stats);
    entry["dir"] = mount.dir;
    entry["mode"] = to_string(mount.mode);
    entry["session"] = mount.session;
    entry["fuse_requests"] = mount.fuse_requests;
    mounts.push_back(std::move(entry));
  }
  return {{"daemon",
           {{"pid", status.pid},
            {"version", status.version},
            {"uptime_seconds", status.uptime_seconds},
            {"root", status.root},
            {"keeper", status.keeper},
            {"keeper_pid", status.keeper_pid}}},
          {"mounts", std::move(mounts)},
          {"store", {{"bytes", status.store_bytes}, {"max_bytes", status.store_max_bytes}}}};
}

DaemonStatus daemon_status_from_json(const json& from) {
  DaemonStatus status;
  const auto daemon = field<json>(from, "daemon");
  status.pid = field<std::int64_t>(daemon, "pid");
  status.version = field<std::string>(daemon, "version");
  status.uptime_seconds = field<double>(daemon, "uptime_seconds");
  status.root = field<std::string>(daemon, "root");
  // A daemon of an earlier version has no keeper.
  status.keeper = daemon.contains("keeper") ? field<std::string>(daemon, "keeper") : "none";
  status.keeper_pid = daemon.contains("keeper_pid") ? field<std::int64_t>(daemon, "keeper_pid") : 0;
  for (const auto& entry : field<json::array_t>(from, "mounts")) {
    status.mounts.push_back({.dir = field<std::string>(entry, "dir"),
                             .mode = parse_mount_mode(field<std::string>(entry, "mode")),
                             .session = field<bool>(entry, "session"),
                             .stats = image_stats_from_json(entry),
                             .fuse_requests = field<std::map<std::string, std::uint64_t>>(entry, "fuse_requests")});
  }
  const auto store = field<json>(from, "store");
  status.store_bytes = field<std::uint64_t>(store, "bytes");
  status.store_max_bytes = field<std::uint64_t>(store, "max_bytes");
  return status;
}

json to_json(const MountResult& result) {
  return {{"dir", result.dir.string()},        {"mode", to_string(result.mode)}, {"why", result.why},
          {"image", result.image.to_string()}, {"seconds", result.seconds},      {"loaded_bytes", result.loaded_bytes}};
}

MountResult mount_result_from_json(const json& from) {
  return {.dir = field<std::string>(from, "dir"),
          .mode = parse_mount_mode(field<std::string>(from, "mode")),
          .why = field<std::string>(from, "why"),
          .image = digest_field(from, "image"),
          .seconds = field<double>(from, "seconds"),
          .loaded_bytes = field<std::uint64_t>(from, "loaded_bytes")};
}

json to_json(const AcquiredImage& image) {
  return {{"dir", image.dir.string()},          {"mode", to_string(image.mode)},    {"why", image.why},
          {"image", image.image.to_string()},   {"config_json", image.config_json}, {"seconds", image.seconds},
          {"loaded_bytes", image.loaded_bytes}, {"stats", to_json(image.stats)}};
}

AcquiredImage acquired_image_from_json(const json& from) {
  return {.dir = field<std::string>(from, "dir"),
          .mode = parse_mount_mode(field<std::string>(from, "mode")),
          .why = field<std::string>(from, "why"),
          .image = digest_field(from, "image"),
          .config_json = field<std::string>(from, "config_json"),
          .seconds = field<double>(from, "seconds"),
          .loaded_bytes = field<std::uint64_t>(from, "loaded_bytes"),
          .stats = image_stats_from_json(field<json>(from, "stats"))};
}

json to_json(const PullResult& result) {
  return {{"image", result.image.to_string()},
          {"fetched_bytes", result.fetched_bytes},
          {"present_bytes", result.present_bytes},
          {"image_stream_bytes", result.image_stream_bytes},
          {"cold_bytes", result.cold_bytes},
          {"cold_present_bytes", result.cold_present_bytes},
          {"finished", result.finished}};
}

PullResult pull_result_from_json(const json& from) {
  return {
      .image = digest_field(from, "image"),
      .fetched_bytes = field<std::uint64_t>(from, "fetched_bytes"),
      .present_bytes = field<std::uint64_t>(from, "present_bytes"),
      .image_stream_bytes = field<std::uint64_t>(from, "image_stream_bytes"),
      .cold_bytes = from.contains("cold_bytes") ? field<std::uint64_t>(from, "cold_bytes") : 0,
      .cold_present_bytes = from.contains("cold_present_bytes") ? field<std::uint64_t>(from, "cold_present_bytes") : 0,
      .finished = field<bool>(from, "finished")};
}

json to_json(const VerifyResult& result) {
  json bad = json::array();
  for (const auto& span : result.bad)
    bad.push_back({{"layer", span.layer.to_string()}, {"stream_offset", span.stream_offset}, {"length", span.length}});
  json layers = json::array();
  for (const auto& layer : result.layers)
    layers.push_back({{"layer", layer.layer.to_string()},
                      {"complete", layer.complete},
                      {"proved", layer.proved},
                      {"refuted", layer.refuted}});
  return {{"checked_bytes", result.checked_bytes},
          {"bad", std::move(bad)},
          {"layers", std::move(layers)},
          {"tree_proved", result.tree_proved},
          {"tree_refuted", result.tree_refuted}};
}

VerifyResult verify_result_from_json(const json& from) {
  VerifyResult result;
  result.checked_bytes = field<std::uint64_t>(from, "checked_bytes");
  for (const auto& span : field<json::array_t>(from, "bad")) {
    result.bad.push_back({.layer = digest_field(span, "layer"),
                          .stream_offset = field<std::uint64_t>(span, "stream_offset"),
                          .length = field<std::uint64_t>(span, "length")});
  }
  if (!from.contains("layers")) return result;  // a daemon of an earlier version
  for (const auto& layer : field<json::array_t>(from, "layers")) {
    result.layers.push_back({.layer = digest_field(layer, "layer"),
                             .complete = field<bool>(layer, "complete"),
                             .proved = field<bool>(layer, "proved"),
                             .refuted = field<std::string>(layer, "refuted")});
  }
  result.tree_proved = field<bool>(from, "tree_proved");
  result.tree_refuted = field<std::string>(from, "tree_refuted");
  return result;
}

json to_json(const std::vector<LayerRanges>& layers) {
  json list = json::array();
  for (const auto& layer : layers) {
    json numbers = json::array();
    for (const auto& range : layer.ranges) {
      numbers.push_back(range.offset);
      numbers.push_back(range.length);
    }
    list.push_back({{"layer", layer.layer.to_string()}, {"ranges", std::move(numbers)}});
  }
  return list;
}

std::vector<LayerRanges> layer_ranges_from_json(const json& from) {
  if (!from.is_array()) fail<CorruptData>("control message: ranges are no list");
  std::vector<LayerRanges> layers;
  std::size_t count = 0;
  for (const auto& entry : from) {
    auto& layer = layers.emplace_back(LayerRanges{.layer = digest_field(entry, "layer"), .ranges = {}});
    const auto numbers = field<std::vector<std::uint64_t>>(entry, "ranges");
    count += numbers.size() / 2;
    if (numbers.size() % 2 != 0 || count > kMaxMessageRanges)
      fail<CorruptData>("control message: ranges of layer {} cannot be read", layer.layer.to_string());
    for (std::size_t i = 0; i < numbers.size(); i += 2)
      layer.ranges.push_back({.offset = numbers[i], .length = numbers[i + 1]});
  }
  return layers;
}

json recording_to_json(ByteView profile) { return {{"profile", base64_encode(as_text(profile))}}; }

Bytes recording_from_json(const json& from) {
  const auto profile = base64_decode(field<std::string>(from, "profile"));
  if (!profile) fail<CorruptData>("control message: field profile is no base64");
  return to_bytes(as_bytes(*profile));
}

}  // namespace varve::fuse
