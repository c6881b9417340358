#include "fuse/mount/mount_table.h"

#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/strings.h"

namespace varve::fuse {
namespace {

std::string_view next_field(std::string_view& line) {
  const auto end = std::min(line.find(' '), line.size());
  const auto field = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return field;
}

// Super options are written so that a comma or colon in a path has a backslash before it.
std::vector<std::string> split_unescaped(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == ',' || text[i + 1] == ':' || text[i + 1] == '\\')) {
      if (separator == ',') parts.back() += text[i];  // the next look, at the paths, takes it away
      parts.back() += text[++i];
    } else if (text[i] == separator) {
      parts.emplace_back();
    } else {
      parts.back() += text[i];
    }
  }
  return parts;
}

// A link to the mount as well as its folder. Nothing of what is mounted is looked at.
bool leads_to(const std::filesystem::path& lower, const std::filesystem::path& dir) {
  if (lower == dir) return true;
  std::error_code error;
  const auto target = std::filesystem::read_symlink(lower, error);
  if (error) return false;
  const auto parent = std::filesystem::canonical(lower.parent_path(), error);
  return !error && (parent / target).lexically_normal() == dir;
}

bool is_number(std::string_view name) { return !name.empty() && name.find_first_not_of("0123456789") == name.npos; }

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

std::vector<OverlayEntry> parse_overlays(std::string_view mountinfo) {
  std::vector<OverlayEntry> overlays;
  for (const auto line : split(mountinfo, "\n")) {
    auto rest = line;
    for (int field = 0; field < 4; ++field) next_field(rest);
    OverlayEntry overlay{.dir = unescape(next_field(rest)), .lower = {}};
    const auto separator = rest.find(" - overlay ");
    if (separator == rest.npos) continue;
    rest.remove_prefix(separator + std::string_view(" - overlay ").size());
    next_field(rest);  // the source
    for (const auto& option : split_unescaped(unescape(rest), ',')) {
      const auto equals = option.find('=');
      const auto name = option.substr(0, equals);
      if (equals == option.npos || (name != "lowerdir" && name != "lowerdir+")) continue;
      for (auto& lower : split_unescaped(option.substr(equals + 1), ':')) overlay.lower.emplace_back(std::move(lower));
    }
    overlays.push_back(std::move(overlay));
  }
  return overlays;
}

std::vector<std::filesystem::path> find_overlays_on(const std::filesystem::path& dir) {
  std::set<std::string> namespaces;
  std::set<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    if (!is_number(at->path().filename().native())) continue;
    std::error_code gone;
    const auto space = std::filesystem::read_symlink(at->path() / "ns/mnt", gone);
    if (gone || namespaces.contains(space.string())) continue;
    try {
      for (auto& overlay : parse_overlays(as_text(read_file(at->path() / "mountinfo"))))
        if (std::ranges::any_of(overlay.lower, [&](const auto& lower) { return leads_to(lower, dir); }))
          found.insert(std::move(overlay.dir));
      namespaces.insert(space.string());
    } catch (const std::system_error&) {  // it ended; another of its namespace may be there
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace varve::fuse
