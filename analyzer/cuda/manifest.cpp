#include "analyzer/cuda/manifest.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/text/json_document.h"
#include "core/base/text/strings.h"

namespace varve::cuda {
namespace {

using index::FlatEntry;
using nlohmann::json;

constexpr std::string_view kOurLabels = "dev.varve.";
constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::string_view kBeside = "beside:";

std::string type_name(FileType type) {
  switch (type) {
    case FileType::kRegular:
      return "file";
    case FileType::kSymlink:
      return "symlink";
    case FileType::kDirectory:
      return "directory";
    default:
      return "other";
  }
}

std::string digest_of_xattrs(const std::map<std::string, std::string>& xattrs) {
  if (xattrs.empty()) return {};
  Sha256 sum;
  for (const auto& [name, value] : xattrs) {
    sum.update(as_bytes(fmt::format("{}:{}:", name.size(), value.size())));
    sum.update(as_bytes(name));
    sum.update(as_bytes(value));
  }
  return sum.finish().hex();
}

ManifestFile file_of(const std::string& path, const FlatEntry& entry, const std::string& rule) {
  ManifestFile file;
  file.path = path;
  file.type = type_name(entry.type);
  file.mode = entry.mode;
  file.uid = entry.uid;
  file.gid = entry.gid;
  file.target = entry.symlink_target;
  file.xattrs = digest_of_xattrs(entry.xattrs);
  file.rule = rule;
  if (entry.type != FileType::kRegular) return file;
  file.size = entry.size;
  if (entry.size == 0) {
    file.sha256 = digest_of(std::string_view()).hex();
  } else if (entry.content_digest != Digest()) {
    file.sha256 = entry.content_digest.hex();
  }
  return file;
}

json parse_config(ByteView bytes) {
  const auto config = JsonValue::parse(bytes, "image config", {.bytes = kMaxConfigBytes});
  if (!config.is_object()) config.refuse("is no JSON object");
  return config.raw();
}

std::map<std::string, std::string> config_members(ByteView config_json) {
  auto document = parse_config(config_json);
  document.erase("rootfs");
  document.erase("history");
  if (const auto inner = document.find("config"); inner != document.end() && inner->is_object()) {
    auto settings = std::move(*inner);
    document.erase(inner);
    if (const auto labels = settings.find("Labels"); labels != settings.end() && labels->is_object()) {
      auto others = json::object();
      for (const auto& [name, value] : labels->items())
        if (!name.starts_with(kOurLabels)) others[name] = value;
      *labels = others.empty() ? json() : std::move(others);
    }
    for (const auto& [name, value] : settings.items())
      if (document.contains(name)) {
        document["config." + name] = value;
      } else {
        document[name] = value;
      }
  }
  std::map<std::string, std::string> members;
  for (const auto& [name, value] : document.items())
    if (!value.is_null()) members.emplace(name, value.dump(-1, ' ', false, json::error_handler_t::replace));
  return members;
}

void add_needs(const Selection& selection, Manifest& manifest) {
  for (const auto& [path, needs] : selection.needs)
    for (const auto& need : needs) {
      const auto key = path + " needs " + need.needed;
      if (need.matches.empty()) {
        manifest.unresolved.push_back(key);
        continue;
      }
      auto& matches = manifest.resolved[key];
      matches = need.matches;
      if (need.sibling)
        for (auto& match : matches) match.insert(0, kBeside);
    }
  std::ranges::sort(manifest.unresolved);
  manifest.unresolved.erase(std::unique(manifest.unresolved.begin(), manifest.unresolved.end()),
                            manifest.unresolved.end());
}

std::string found_list(const std::vector<std::string>& list) { return list.empty() ? "nothing" : joined(list); }

// The first thing that differs, in words; "" if nothing does.
std::string difference(const ManifestFile& before, const ManifestFile& after) {
  if (before.type != after.type) return fmt::format("{} instead of {}", after.type, before.type);
  if (before.target != after.target)
    return fmt::format("leads to {:.300} instead of {:.300}", after.target, before.target);
  if (before.size != after.size) return fmt::format("{} bytes instead of {}", after.size, before.size);
  if (before.sha256 != after.sha256)
    return fmt::format("sha256 {} instead of {}", after.sha256.empty() ? "unknown" : after.sha256,
                       before.sha256.empty() ? "unknown" : before.sha256);
  if (before.mode != after.mode) return fmt::format("mode {:04o} instead of {:04o}", after.mode, before.mode);
  if (before.uid != after.uid || before.gid != after.gid)
    return fmt::format("owner {}:{} instead of {}:{}", after.uid, after.gid, before.uid, before.gid);
  if (before.xattrs != after.xattrs)
    return fmt::format("extended attributes {} instead of {}", after.xattrs.empty() ? "none" : after.xattrs,
                       before.xattrs.empty() ? "none" : before.xattrs);
  return {};
}

void compare_files(const Manifest& before, const Manifest& after, std::vector<std::string>& lines) {
  auto old_one = before.files.begin();
  auto new_one = after.files.begin();
  while (old_one != before.files.end() || new_one != after.files.end()) {
    if (new_one == after.files.end() || (old_one != before.files.end() && old_one->path < new_one->path)) {
      lines.push_back(fmt::format("{}: not there any more ({})", old_one->path, old_one->rule));
      ++old_one;
    } else if (old_one == before.files.end() || new_one->path < old_one->path) {
      lines.push_back(fmt::format("{}: was not there, or not CUDA, before ({})", new_one->path, new_one->rule));
      ++new_one;
    } else {
      if (const auto what = difference(*old_one, *new_one); !what.empty())
        lines.push_back(fmt::format("{}: {}", old_one->path, what));
      ++old_one;
      ++new_one;
    }
  }
}

void compare_needs(const Manifest& before, const Manifest& after, std::vector<std::string>& lines) {
  for (const auto& key : after.unresolved)
    if (!std::ranges::binary_search(before.unresolved, key))
      lines.push_back(
          fmt::format("{}, which {}", key, before.resolved.contains(key) ? "is not found any more" : "is not found"));
  for (const auto& [key, matches] : before.resolved) {
    const auto now = after.resolved.find(key);
    // Gone with its file, or not found any more: said already.
    if (now != after.resolved.end() && now->second != matches)
      lines.push_back(fmt::format("{}: finds {} instead of {}", key, found_list(now->second), found_list(matches)));
  }
  for (const auto& [key, matches] : after.resolved)
    if (std::ranges::binary_search(before.unresolved, key))
      lines.push_back(fmt::format("{}: finds {}, and nothing before", key, found_list(matches)));
}

void compare_config(const Manifest& before, const Manifest& after, std::vector<std::string>& lines) {
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [name, value] : before.config) both[name].first = value;
  for (const auto& [name, value] : after.config) both[name].second = value;
  for (const auto& [name, values] : both) {
    const auto& [old_text, new_text] = values;
    if (old_text == new_text) continue;
    if (old_text.empty() || new_text.empty()) {
      lines.push_back(fmt::format("{}: {:.300} instead of {:.300}", name, new_text.empty() ? "absent" : new_text,
                                  old_text.empty() ? "absent" : old_text));
      continue;
    }
    // Of lists and objects, the first member that differs: an Env has dozens.
    const auto old_value = json::parse(old_text, nullptr, false), new_value = json::parse(new_text, nullptr, false);
    auto where = name;
    auto old_part = old_text, new_part = new_text;
    if (old_value.is_array() && new_value.is_array()) {
      for (std::size_t i = 0; i < std::max(old_value.size(), new_value.size()); ++i) {
        const auto text_at = [&](const json& list) {
          return i < list.size() ? list[i].dump(-1, ' ', false, json::error_handler_t::replace)
                                 : std::string("nothing");
        };
        if (i < old_value.size() && i < new_value.size() && old_value[i] == new_value[i]) continue;
        where = fmt::format("{}[{}]", name, i);
        old_part = text_at(old_value);
        new_part = text_at(new_value);
        break;
      }
    } else if (old_value.is_object() && new_value.is_object()) {
      auto all = old_value;
      all.update(new_value);
      for (const auto& [key, ignored] : all.items()) {
        const auto text_at = [&key = key](const json& object) {
          return object.contains(key) ? object[key].dump(-1, ' ', false, json::error_handler_t::replace)
                                      : std::string("nothing");
        };
        if (text_at(old_value) == text_at(new_value)) continue;
        where = name + "." + key;
        old_part = text_at(old_value);
        new_part = text_at(new_value);
        break;
      }
    }
    lines.push_back(fmt::format("{}: {:.300} instead of {:.300}", where, new_part, old_part));
  }
}

}  // namespace

Digest config_digest(const std::map<std::string, std::string>& config) {
  Sha256 sum;
  for (const auto& [name, value] : config)
    sum.update(as_bytes(fmt::format("{}:{}:{}{}", name.size(), value.size(), name, value)));
  return sum.finish();
}

std::string library_path_of(ByteView config_json) {
  const auto document = parse_config(config_json);
  std::string path;
  if (const auto config = document.find("config"); config != document.end() && config->is_object())
    if (const auto env = config->find("Env"); env != config->end() && env->is_array())
      for (const auto& variable : *env)
        // The last one counts, as for execve(2) and every runtime.
        if (constexpr std::string_view kName = "LD_LIBRARY_PATH=";
            variable.is_string() && variable.get_ref<const std::string&>().starts_with(kName))
          path = variable.get_ref<const std::string&>().substr(kName.size());
  return path;
}

Manifest make_manifest(const index::FlatTree& tree, const Selection& selection, const Rules& rules,
                       ByteView config_json, const Digest& image) {
  Manifest manifest;
  manifest.image = image;
  manifest.rules = rules.digest;
  manifest.files.reserve(selection.files.size());
  for (const auto& [path, kept] : selection.files)
    manifest.files.push_back(file_of(path, tree.entries.find(path)->second, kept.rule));
  add_needs(selection, manifest);
  manifest.missing = selection.missing;
  manifest.config = config_members(config_json);
  manifest.config_digest = config_digest(manifest.config);
  return manifest;
}

Manifest make_manifest(const index::FlatTree& tree, std::string_view ld_cache, const Rules& rules, ByteView config_json,
                       const Digest& image) {
  const elf::Loader loader(tree, {.library_path = library_path_of(config_json), .cache = std::string(ld_cache)});
  return make_manifest(tree, select_cuda(tree, loader, rules), rules, config_json, image);
}

std::vector<std::string> compare(const Manifest& before, const Manifest& after) {
  std::vector<std::string> lines;
  compare_files(before, after, lines);
  compare_needs(before, after, lines);
  compare_config(before, after, lines);
  return lines;
}

}  // namespace varve::cuda
