#pragma once
// What goes over the control socket: one JSON document a line (docs/mounts.md "Control socket"). A request names a
// call; the answers to it are any number of progress lines and then one result or error.
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "core/base/unique_fd.h"
#include "fuse/daemon/control_client.h"

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

// Parses one line with limits on depth. Throws CorruptData naming `what`.
nlohmann::json parse_control_line(const std::string& line, std::string_view what);

// An error crosses with its kind, so that the command ends with the status it would have had in one process.
nlohmann::json error_to_json(const std::exception& error);
[[noreturn]] void throw_from_json(const nlohmann::json& error);

// Fields that are missing or of the wrong type are CorruptData naming the field.
nlohmann::json to_json(const ImageSpec& spec);
ImageSpec image_spec_from_json(const nlohmann::json& json);
nlohmann::json to_json(const ImageStats& stats);
ImageStats image_stats_from_json(const nlohmann::json& json);
nlohmann::json to_json(const DaemonStatus& status);
DaemonStatus daemon_status_from_json(const nlohmann::json& json);
nlohmann::json to_json(const MountResult& result);
MountResult mount_result_from_json(const nlohmann::json& json);
nlohmann::json to_json(const AcquiredImage& image);
AcquiredImage acquired_image_from_json(const nlohmann::json& json);
nlohmann::json to_json(const PullResult& result);
PullResult pull_result_from_json(const nlohmann::json& json);
nlohmann::json to_json(const VerifyResult& result);
VerifyResult verify_result_from_json(const nlohmann::json& json);

// As one list of numbers a layer: offset, length, offset, ... At most kMaxMessageRanges in all.
inline constexpr std::size_t kMaxMessageRanges = 2'000'000;
nlohmann::json to_json(const std::vector<LayerRanges>& layers);
std::vector<LayerRanges> layer_ranges_from_json(const nlohmann::json& json);
nlohmann::json recording_to_json(ByteView profile);
Bytes recording_from_json(const nlohmann::json& json);

}  // namespace varve::fuse
