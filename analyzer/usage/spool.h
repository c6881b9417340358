#pragma once
// One record of a usage spool. Format: docs/formats/usage-spool.md.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/digest.h"

namespace varve::usage {

inline constexpr std::size_t kMaxSpoolLineBytes = 4096;  // without the line end
inline constexpr std::uint64_t kMaxSpoolFileBytes = 8u
                                                    << 20;  // what one process may write; a reader refuses 4 times that

enum class Directness : std::uint8_t { kDirect, kTransitive, kStatic };
enum class Copy : std::uint8_t { kUnknown, kImage, kSession };

struct StartRecord {
  std::string session;          // 32 hex digits
  std::string process;          // 16 hex digits
  std::string parent;           // "" = the session's first process
  std::int32_t day = 0;         // days since 1970-01-01, UTC
  std::optional<Digest> image;  // absent: not known to the writer
  std::string writer;
  std::string user;                    // 32 hex digits, "" = unknown
  std::string python, platform, main;  // "" where the writer is not the recorder
};
struct LaunchRecord {};
struct ImportRecord {
  std::string module;  // dotted
  Directness how = Directness::kDirect;
  std::string by;  // dotted; "" unless transitive
  Copy copy = Copy::kUnknown;
  std::string distribution, version;  // "" for the image's own copy
};
struct FailedRecord {
  std::string module;
  Directness how = Directness::kDirect;
};
enum class InstallReason : std::uint8_t { kUpgrade, kDowngrade, kSame, kNew, kRemoved };
struct InstallRecord {
  std::string distribution;
  std::string from, to;  // versions; "" = absent
  InstallReason why = InstallReason::kNew;
  std::string tool;
};
struct FileRecord {
  std::string path;  // in the image, without the leading "/"
  bool executed = false;
};
struct GpuRecord {
  bool present = false, used = false;
  std::vector<std::string> models;
  std::string driver;
};
struct BeatRecord {
  std::uint64_t cells = 0, busy_seconds = 0, idle_seconds = 0;
  bool gpu_used = false;
};
struct EndRecord {
  bool ok = true;
  bool all_files = false;  // each file of the image that the session opened or executed is in this spool file
};
struct FullRecord {
  std::uint64_t dropped = 0;
};
struct UnknownRecord {
  std::string kind;
};  // of a newer writer

struct SpoolRecord {
  std::uint64_t at_seconds = 0;  // since the process began
  std::variant<StartRecord, LaunchRecord, ImportRecord, FailedRecord, InstallRecord, FileRecord, GpuRecord, BeatRecord,
               EndRecord, FullRecord, UnknownRecord>
      what;
};

std::string_view install_reason_name(InstallReason why);  // "upgrade" "downgrade" "same" "new" "removed"

// Reads one line (without its line end). Throws CorruptData with what is wrong; never quotes the line's content.
SpoolRecord parse_spool_line(std::string_view line);
// Writes one line, line end included. The inverse of the above. Throws CorruptData where the line would be too long or
// not UTF-8.
std::string spool_line(const SpoolRecord& record);

}  // namespace varve::usage
