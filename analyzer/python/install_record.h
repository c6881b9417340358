#pragma once
// What installers leave beside a distribution: RECORD, installed-files.txt, SOURCES.txt, top_level.txt, INSTALLER,
// direct_url.json. PEP 376, 427, 610; packaging.python.org/specifications/recording-installed-packages, …/direct-url.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"

namespace varve::python {

inline constexpr std::size_t kMaxRecordPathBytes = 4096;

struct RecordEntry {
  std::string_view path;  // valid during the call; "/" between components, else as written: relative to the folder of
                          // the dist-info, or absolute
  std::optional<Digest> sha256;  // absent where there is none, or another kind
  std::optional<std::uint64_t> size;
};

struct RecordTally {
  std::uint64_t entries = 0;
  std::uint64_t unreadable = 0;  // rows without a path, with a longer one, with NUL, or with a quote that never ends
  std::uint64_t first_unreadable = 0;  // its row, 1-based; 0 = none
};

// Rows in order, a row as soon as it is read: a million need no memory. Never throws but what `got` throws.
RecordTally read_record(std::string_view text, const std::function<void(const RecordEntry&)>& got);

// Lines of installed-files.txt (relative to the egg-info folder), SOURCES.txt (relative to the project's root) or
// RECORD-like lists: blank ones left out, "\" made "/".
RecordTally read_path_list(std::string_view text, const std::function<void(std::string_view path)>& got);

// `path` as RECORD writes it, seen from `folder` (without leading "/", "" = root): "usr/bin/f2py" of
// ("usr/lib/python3/dist-packages", "../../../bin/f2py"). Absolute ones lose their "/". Absent when it climbs out of
// the root or is the root itself.
std::optional<std::string> resolve_path(std::string_view folder, std::string_view path);

// top_level.txt: names, in order, without doubles. Names that cannot be imported (with "-", spaces) are left out; "a/b"
// of namespace roots becomes "a.b".
std::vector<std::string> parse_top_level(std::string_view text);

// INSTALLER: its first word, lower case; "" if there is none.
std::string parse_installer(std::string_view text);

struct DirectUrl {
  enum class Kind : std::uint8_t { kFolder, kArchive, kVcs };
  Kind kind = Kind::kFolder;
  std::string url;
  std::string subdirectory;  // "" = none
  bool editable = false;
  std::string vcs, commit, requested_revision;  // of kVcs
  std::map<std::string, std::string> hashes;    // of kArchive: "sha256" -> hex
};
// Throws CorruptData naming `what`.
DirectUrl parse_direct_url(std::string_view json, std::string_view what = "direct_url.json");

}  // namespace varve::python
