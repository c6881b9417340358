#include "fuse/mount/mount_table.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/file.h"

namespace varve::fuse {
namespace {

std::string_view next_field(std::string_view& line) {
  const auto end = std::min(line.find(' '), line.size());
  const auto field = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return field;
}

bool is_octal(char c) { return c >= '0' && c <= '7'; }

// Spaces, tabs, newlines and backslashes are written as \ooo.
std::string unescape(std::string_view field) {
  std::string text;
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i] == '\\' && i + 3 < field.size() && is_octal(field[i + 1]) && is_octal(field[i + 2]) &&
        is_octal(field[i + 3])) {
      text += static_cast<char>((field[i + 1] - '0') * 64 + (field[i + 2] - '0') * 8 + (field[i + 3] - '0'));
      i += 3;
    } else {
      text += field[i];
    }
  }
  return text;
}

}  // namespace

std::vector<MountEntry> parse_mount_table(std::string_view mountinfo) {
  std::vector<MountEntry> entries;
  while (!mountinfo.empty()) {
    const auto end = std::min(mountinfo.find('\n'), mountinfo.size());
    auto line = mountinfo.substr(0, end);
    mountinfo.remove_prefix(std::min(end + 1, mountinfo.size()));
    // ID PARENT MAJ:MIN ROOT DIR OPTIONS [OPTIONAL...] - TYPE SOURCE OPTIONS
    MountEntry entry;
    next_field(line);
    next_field(line);
    entry.device = next_field(line);
    next_field(line);
    entry.dir = unescape(next_field(line));
    const auto separator = line.find(" - ");
    if (separator == std::string_view::npos) continue;
    line.remove_prefix(separator + 3);
    entry.type = next_field(line);
    entry.source = unescape(next_field(line));
    entries.push_back(std::move(entry));
  }
  return entries;
}

const MountEntry* topmost_at(const std::vector<MountEntry>& table, const std::filesystem::path& dir) {
  const auto found = std::find_if(table.rbegin(), table.rend(), [&](const auto& entry) { return entry.dir == dir; });
  return found == table.rend() ? nullptr : &*found;
}

bool is_mounted_at(const std::vector<MountEntry>& table, const std::filesystem::path& dir, const MountEntry& what) {
  return std::any_of(table.begin(), table.end(),
                     [&](const auto& entry) { return entry.dir == dir && entry.is_same(what); });
}

std::vector<MountEntry> read_mount_table() { return parse_mount_table(as_text(read_file("/proc/self/mountinfo"))); }

}  // namespace varve::fuse
