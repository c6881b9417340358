#include "cli/containerd/containerd_config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/text/strings.h"

namespace varve::cli {
namespace {

constexpr int kOldestFormat = 2;
constexpr int kNewestFormat = 4;
constexpr std::string_view kName = "varve";
constexpr std::string_view kTransferService = "io.containerd.transfer.v1.local";
constexpr std::string_view kOldCri = "io.containerd.grpc.v1.cri";
constexpr std::string_view kCriImages = "io.containerd.cri.v1.images";

using Path = std::vector<std::string>;

// A basic string is written alike in JSON and TOML.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_bare(std::string_view key) {
  return !key.empty() &&
         std::ranges::all_of(key, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

std::string header_of(const Path& table) {
  std::vector<std::string> parts;
  for (const auto& name : table) parts.push_back(is_bare(name) ? name : quoted(name));
  return joined(parts, ".");
}

std::string trimmed(std::string_view line) {
  const auto begin = line.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return std::string(line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1));
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + '\n';
  return text;
}

std::optional<TomlValue> parse_line(const std::string& line) {
  try {
    return parse_toml(line, "line");
  } catch (const CorruptData&) {
    return std::nullopt;
  }
}

const TomlValue* find(const TomlValue& file, const Path& table) {
  const auto* value = &file;
  for (const auto& name : table) {
    value = value->kind == TomlValue::Kind::kTable ? value->find(name) : nullptr;
    if (value == nullptr) return nullptr;
  }
  return value;
}

// A line "[a.b]" of that very table.
bool is_header(const std::string& line, const Path& table) {
  if (!trimmed(line).starts_with('[') || trimmed(line).starts_with("[[")) return false;
  const auto parsed = parse_line(line);
  const auto* leaf = parsed ? find(*parsed, table) : nullptr;
  return leaf != nullptr && leaf->kind == TomlValue::Kind::kTable && leaf->table.empty();
}

// What a value written as TOML is.
TomlValue value_of(const std::string& value) { return parse_toml("it = " + value, "value").table.at("it"); }

bool is_same(const TomlValue& a, const TomlValue& b) {
  if (a.kind != b.kind) return false;
  if (a.kind != TomlValue::Kind::kArray)
    return a.text == b.text && a.integer == b.integer && a.flag == b.flag && a.number == b.number;
  return std::ranges::equal(a.array, b.array, is_same);
}

bool has_unpacker(const TomlValue& file) {
  const auto* service = find(file, {"plugins", std::string(kTransferService)});
  const auto* unpackers = service == nullptr ? nullptr : service->find("unpack_config");
  return unpackers != nullptr && std::ranges::any_of(unpackers->array, [](const TomlValue& one) {
           const auto* name = one.kind == TomlValue::Kind::kTable ? one.find("snapshotter") : nullptr;
           return name != nullptr && name->text == kName;
         });
}

std::string unpacker_text(const ContainerdSettings& settings) {
  return fmt::format("[[{}]]\n  platform = {}\n  snapshotter = \"{}\"\n  differ = \"walking\"\n",
                     header_of({"plugins", std::string(kTransferService), "unpack_config"}), quoted(settings.platform),
                     kName);
}

// One file on its way.
class Merger {
 public:
  Merger(std::string_view text, std::string_view what) : lines_(lines_of(text)), what_(what) {}

  void set(const ContainerdSetting& setting) {
    const auto file = parse();
    const auto* table = find(file, setting.table);
    const auto* value = table == nullptr || table->kind != TomlValue::Kind::kTable ? nullptr : table->find(setting.key);
    if (value != nullptr && is_same(*value, value_of(setting.value))) return;
    const auto line = fmt::format("{} = {}", setting.key, setting.value);
    if (value != nullptr) return replace(*value, setting, line);
    if (last_table_ == setting.table) {
      lines_.push_back("  " + line);
      return;
    }
    const auto header = std::ranges::find_if(lines_, [&](const auto& one) { return is_header(one, setting.table); });
    if (header != lines_.end()) {
      lines_.insert(header + 1, std::string(header->find_first_not_of(" \t"), ' ') + "  " + line);
      return;
    }
    append('[' + header_of(setting.table) + "]\n  " + line);
    last_table_ = setting.table;
  }

  void append(const std::string& block) {
    if (!lines_.empty() && !lines_.back().empty()) lines_.emplace_back();
    for (auto& line : lines_of(block)) lines_.push_back(std::move(line));
    last_table_.clear();
  }

  void remove_line(std::uint32_t line) { lines_.erase(lines_.begin() + std::ptrdiff_t(line) - 1); }
  void prepend(const std::string& line) { lines_.insert(lines_.begin(), line); }
  TomlValue parse() const { return parse_toml(text(), what_); }
  std::string text() const { return text_of(lines_); }
  const std::string& line_at(std::uint32_t line) const { return lines_.at(line - 1); }

 private:
  void replace(const TomlValue& value, const ContainerdSetting& setting, const std::string& line) {
    auto& old = lines_.at(value.line - 1);
    const auto alone = parse_line(old);
    if (!alone || alone->table.size() != 1 || !alone->find(setting.key) || !is_same(*alone->find(setting.key), value))
      fail<Unsupported>("{}:{}: {} is set in a way that is not understood here; make it a line of its own, or {}",
                        what_, value.line, setting.key, line);
    old = std::string(old.find_first_not_of(" \t"), ' ') + line + "  # was: " + trimmed(old);
  }

  std::vector<std::string> lines_;
  const std::string_view what_;
  Path last_table_;  // the one that the text ends in, if it was added here
};

std::optional<int> format_of(const TomlValue& file) {
  const auto* version = file.find("version");
  if (version == nullptr) return std::nullopt;
  return int(std::clamp<std::int64_t>(version->integer, -1, 1 << 20));
}

bool is_new(const ContainerdSettings& settings) { return settings.version.major >= 2; }

void refuse_format(const TomlValue& file, std::string_view what, const ContainerdSettings& settings) {
  const auto format = format_of(file).value_or(1);
  if (format < kOldestFormat)
    fail<Unsupported>(
        "{}: its format is version {}, which knows no plugins by their full names; `containerd config migrate` (2.0 and "
        "later) writes it anew",
        what, format);
  if (format > kNewestFormat || (format > 2 && !is_new(settings)))
    fail<Unsupported>("{}: its format is version {}, and containerd {} is asked for", what, format,
                      settings.version.to_string());
  // Both would be read, and which one counts is containerd's own affair.
  const auto* old_cri = find(file, {"plugins", std::string(kOldCri), "containerd"});
  if (is_new(settings) && old_cri != nullptr)
    fail<Unsupported>(
        "{}:{}: is configured for containerd 1.x; `containerd config migrate > NEW` writes it for {}, then try again with "
        "that",
        what, old_cri->line, settings.version.to_string());
}

void merge_unpacker(Merger& merger, const ContainerdSettings& settings) {
  const auto file = merger.parse();
  if (has_unpacker(file)) return;
  const auto* service = find(file, {"plugins", std::string(kTransferService)});
  const auto* empty = service == nullptr ? nullptr : service->find("unpack_config");
  // As `containerd config default` writes it. Tables cannot be added to it.
  if (empty != nullptr && empty->array.empty() && parse_line(merger.line_at(empty->line)))
    merger.remove_line(empty->line);
  merger.append(unpacker_text(settings));
}

}  // namespace

std::string ContainerdVersion::to_string() const { return fmt::format("{}.{}.{}", major, minor, patch); }

// "containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6+deb13u1": the first word that is a version.
ContainerdVersion parse_containerd_version(std::string_view text) {
  for (std::string_view rest = text; !rest.empty();) {
    const auto begin = rest.find_first_not_of(" \t\n");
    if (begin == std::string_view::npos) break;
    auto word = rest.substr(begin, rest.find_first_of(" \t\n", begin) - begin);
    rest.remove_prefix(std::min(rest.size(), begin + word.size() + 1));
    if (word.starts_with('v')) word.remove_prefix(1);
    ContainerdVersion version;
    int* const parts[] = {&version.major, &version.minor, &version.patch};
    std::size_t count = 0;
    for (const char* at = word.data(); count < 3;) {
      const auto [end, error] = std::from_chars(at, word.data() + word.size(), *parts[count]);
      if (error != std::errc()) break;
      ++count;
      if (end == word.data() + word.size() || *end != '.') break;
      at = end + 1;
    }
    if (count < 2) continue;
    if (version < ContainerdVersion{1, 6, 0} || version.major > 2)
      fail<Unsupported>("containerd {}: only 1.6 to 2.x are known here", version.to_string());
    return version;
  }
  fail<UsageError>("{:.200}: names no version of containerd, as 1.7.24", trimmed(text));
}

std::vector<ContainerdSetting> settings_for(const ContainerdSettings& settings) {
  const Path proxy{"proxy_plugins", std::string(kName)};
  const Path exports{"proxy_plugins", std::string(kName), "exports"};
  const auto cri =
      is_new(settings) ? Path{"plugins", std::string(kCriImages)} : Path{"plugins", std::string(kOldCri), "containerd"};
  std::vector<ContainerdSetting> wanted{{proxy, "type", "\"snapshot\""},
                                        {proxy, "address", quoted(settings.socket.string())}};
  // Earlier ones do not know the word, and copy an image for each user namespace.
  if (settings.version >= ContainerdVersion{1, 7, 23}) wanted.push_back({proxy, "capabilities", "[\"remap-ids\"]"});
  wanted.push_back({exports, "root", quoted(settings.root.string())});
  if (settings.version >= ContainerdVersion{2, 1, 0})
    wanted.push_back({exports, "enable_remote_snapshot_annotations", "\"true\""});
  wanted.push_back({cri, "snapshotter", fmt::format("\"{}\"", kName)});
  wanted.push_back({cri, "disable_snapshot_annotations", "false"});
  return wanted;
}

std::string merge_settings(std::string_view text, std::string_view what, const ContainerdSettings& settings) {
  const auto before = parse_toml(text, what);
  Merger merger(text, what);
  if (before.table.empty())
    merger.prepend(fmt::format("version = {}", is_new(settings) ? 3 : 2));
  else
    refuse_format(before, what, settings);
  const auto refuse = [&](std::string_view why) {
    fail<Unsupported>(
        "{}: is written in a way that cannot be added to ({}); add by hand what `varve containerd "
        "configure` prints",
        what, why);
  };
  std::string merged;
  try {
    for (const auto& setting : settings_for(settings)) merger.set(setting);
    if (is_new(settings)) merge_unpacker(merger, settings);
    merged = merger.text();
    if (const auto missing = missing_settings(parse_toml(merged, what), what, settings); !missing.empty())
      refuse(missing.front());
  } catch (const CorruptData& error) {  // of what is in the file now: it was no TOML any more
    refuse(error.what());
  }
  return merged == text_of(lines_of(text)) ? std::string(text) : merged;
}

std::vector<std::string> missing_settings(const TomlValue& file, std::string_view what,
                                          const ContainerdSettings& settings) {
  std::vector<std::string> missing;
  for (const auto& setting : settings_for(settings)) {
    const auto* table = find(file, setting.table);
    const auto* value = table == nullptr || table->kind != TomlValue::Kind::kTable ? nullptr : table->find(setting.key);
    if (value != nullptr && is_same(*value, value_of(setting.value))) continue;
    const auto place = value == nullptr ? std::string(what) : toml_place(what, *value);
    missing.push_back(
        fmt::format("{}: {} of [{}] is not {}", place, setting.key, header_of(setting.table), setting.value));
  }
  if (is_new(settings) && !has_unpacker(file))
    missing.push_back(fmt::format("{}: no [[{}]] is for the snapshotter \"{}\"", what,
                                  header_of({"plugins", std::string(kTransferService), "unpack_config"}), kName));
  return missing;
}

}  // namespace varve::cli
