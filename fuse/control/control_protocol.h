#pragma once
// What goes over the control socket: one JSON document a line (docs/formats/daemon.md "Control socket"). A request
// names a call; the answers to it are any number of progress lines and then one result or error.
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/unique_fd.h"
#include "core/base/text/json_document.h"
#include "fuse/control/control_messages.h"

namespace varve {
void to_json(nlohmann::json& to, const Digest& digest);
void from_json(const nlohmann::json& from, Digest& digest);
}  // namespace varve
namespace varve::fuse {

inline constexpr int kControlVersion = 1;
inline constexpr std::size_t kMaxRequestBytes = 256 * 1024;
inline constexpr std::size_t kMaxAnswerBytes = 64 * 1024 * 1024;
inline constexpr int kMaxControlJsonDepth = 32;

// Lines over a stream socket. Used by one thread at a time.
class LineSocket {
 public:
  LineSocket(UniqueFd socket, std::size_t max_line_bytes)
      : socket_(std::move(socket)), max_line_bytes_(max_line_bytes) {}

  // Absent when the other side has closed; also when `timeout_ms` (if not negative) passes, see timed_out(). Throws
  // Unsupported for a line that is too long and std::system_error.
  std::optional<std::string> read_line(int timeout_ms = -1);
  bool timed_out() const { return timed_out_; }
  // Throws std::system_error; EPIPE if the other side has gone.
  void write_line(const std::string& line);
  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  std::size_t max_line_bytes_;
  std::string pending_;
  bool timed_out_ = false;
};

// Parses one line with limits on depth. Throws CorruptData or Unsupported naming `what`.
JsonValue parse_control_line(std::string_view line, std::string_view what);

// An error crosses with its kind, so that the command ends with the status it would have had in one process.
nlohmann::json error_to_json(const std::exception& error);
[[noreturn]] void throw_from_json(const JsonValue& error);

// A message that came; its fields are declared below. Throws CorruptData for what is of another type.
template <typename Message>
Message read_message(const JsonValue& from) {
  try {
    return from.raw().get<Message>();
  } catch (const nlohmann::json::exception& error) {
    from.refuse(error.what());
  }
}

// A profile that was recorded: base64, as {"profile": ...}.
nlohmann::json recording_to_json(ByteView profile);

// Each message is the list of its fields. One that is missing keeps its default, as daemons and commands of other
// versions leave some out. CLI.md shows those of `varve status` and `varve pull` to users.
template <typename Field>
void read_field(const nlohmann::json& from, const char* name, Field& field) {
  if (!from.is_object()) fail<CorruptData>("control message: {} where an object is expected", from.type_name());
  const auto found = from.find(name);
  if (found == from.end()) return;
  try {
    found->get_to(field);
  } catch (const nlohmann::json::exception& error) {
    fail<CorruptData>("control message: field {} is of the wrong type: {}", name, error.what());
  }
}

#define VARVE_WRITE_FIELD(name) to[#name] = message.name;
#define VARVE_READ_FIELD(name) read_field(from, #name, message.name);
#define VARVE_MESSAGE(Message, ...)                                           \
  inline void to_json(nlohmann::json& to, const Message& message) {           \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(VARVE_WRITE_FIELD, __VA_ARGS__)) \
  }                                                                           \
  inline void from_json(const nlohmann::json& from, Message& message) {       \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(VARVE_READ_FIELD, __VA_ARGS__))  \
  }
// The fields of the member `part` stand among its own.
#define VARVE_MESSAGE_WITH(Message, part, ...)                                \
  inline void to_json(nlohmann::json& to, const Message& message) {           \
    to = message.part;                                                        \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(VARVE_WRITE_FIELD, __VA_ARGS__)) \
  }                                                                           \
  inline void from_json(const nlohmann::json& from, Message& message) {       \
    from.get_to(message.part);                                                \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(VARVE_READ_FIELD, __VA_ARGS__))  \
  }

void to_json(nlohmann::json& to, MountMode mode);
void from_json(const nlohmann::json& from, MountMode& mode);

}  // namespace varve::fuse
namespace varve::oci {
using fuse::read_field;
VARVE_MESSAGE(MirrorRule, prefix, locations, resolve, upstream, place)
VARVE_MESSAGE(MirrorSettings, off, hosts_dirs, registries_conf, rules)
VARVE_MESSAGE(SourceStatus, host, mirror, state, bytes, failures, wrong, last_error)
VARVE_MESSAGE(RegistryOptions, authfile, ca_file, plain_http, max_attempts, connect_timeout_ms, stall_timeout_ms,
              referrers_api, index_from, mirrors)
}  // namespace varve::oci
namespace varve::fuse {

VARVE_MESSAGE_WITH(ImageSpec, registry, reference, platform)
VARVE_MESSAGE(ImageStats, image, reference, image_stream_bytes, present_bytes, cold_bytes, cold_present_bytes,
              fetched_bytes, bytes_from, sources, requests, prefetched_bytes, decoded_bytes, copied_bytes, layers,
              proved_layers, fetching, errors, last_error, waiting_seconds, waiting_for)
VARVE_MESSAGE_WITH(MountStatus, stats, dir, mode, session, holders, held_by, tree_layers, fuse_requests)
VARVE_MESSAGE(PullStatus, image, reference, cold, fill, done_bytes, total_bytes, fetched_bytes, seconds,
              waiting_seconds, waiting_for, error)
VARVE_MESSAGE(DaemonProcess, pid, version, uptime_seconds, root, keeper, keeper_pid)
VARVE_MESSAGE(StoreStatus, bytes, max_bytes)
VARVE_MESSAGE(IdleMountStatus, dir, mode, image, reference, idle_seconds)
VARVE_MESSAGE(LinkStatus, host, answer_seconds, bytes_per_second)
VARVE_MESSAGE(DaemonStatus, daemon, mounts, idle, pulls, links, store)
VARVE_MESSAGE(ProcessName, pid, name)
VARVE_MESSAGE(MountUse, dir, image, reference, session, held_by, processes)
VARVE_MESSAGE(StopResult, in_use)
VARVE_MESSAGE(MountOptions, prefetch, record, fill)
VARVE_MESSAGE(MountResult, dir, mode, why, image, seconds, loaded_bytes)
VARVE_MESSAGE(AcquiredImage, dir, mode, why, image, config_json, seconds, loaded_bytes, stats)
VARVE_MESSAGE(LookedUpImage, image, reference, config_json, layers)
VARVE_MESSAGE(HeldTree, name, image, layers, dir, mode, why)
VARVE_MESSAGE(PullResult, image, fetched_bytes, copied_bytes, present_bytes, image_stream_bytes, cold_bytes,
              cold_present_bytes, finished)
VARVE_MESSAGE(RemovedImage, freed_bytes, removed_layers, busy_layers)
VARVE_MESSAGE(BadSpan, layer, stream_offset, length)
VARVE_MESSAGE(VerifiedLayer, layer, complete, proved, refuted)
VARVE_MESSAGE(StaleMount, image, reference, dir, file, files, why)
VARVE_MESSAGE(VerifyResult, checked_bytes, absent_bytes, bad, stale, layers, tree_proved, tree_refuted)

// With the numbers of strangers brought into their range.
ImageSpec read_image_spec(const JsonValue& from);

// As one list of numbers a layer: offset, length, offset, ... At most kMaxMessageRanges in all.
inline constexpr std::size_t kMaxMessageRanges = 2'000'000;
void to_json(nlohmann::json& to, const LayerRanges& layer);
// Throws CorruptData for what is no list of such layers.
std::vector<LayerRanges> read_layer_ranges(const JsonValue& from);

}  // namespace varve::fuse
