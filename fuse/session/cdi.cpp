#include "fuse/session/cdi.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/json_document.h"
#include "core/base/text/yaml.h"

namespace varve::fuse {
namespace {

using nlohmann::json;
constexpr int kMaxDepth = 32;

// What a newer specification adds is passed over, as it says.
JsonValue parse_cdi_text(std::string_view text, bool yaml, std::string_view what) {
  if (!yaml)
    return JsonValue::parse(text, what, {.bytes = kMaxCdiFileBytes, .depth = kMaxDepth, .values = kMaxCdiNodes});
  return parse_yaml(text, what, {.depth = kMaxDepth, .values = kMaxCdiNodes});
}

std::string text_without_nul(const JsonValue& value) {
  auto text = value.text();
  if (text.find('\0') != text.npos) value.refuse("holds a NUL");
  return text;
}

std::string needed_text(const JsonValue& value) {
  auto text = text_without_nul(value);
  if (text.empty()) value.refuse("is empty");
  return text;
}

std::string absolute_path(const JsonValue& value) {
  auto path = text_without_nul(value);
  if (!path.empty() && !path.starts_with('/')) value.refuse("is no absolute path");
  return path;
}

std::string needed_path(const JsonValue& value) {
  needed_text(value);
  return absolute_path(value);
}

std::vector<std::string> texts_without_nul(const JsonValue& list) {
  std::vector<std::string> texts;
  for (const auto& one : list.items()) texts.push_back(text_without_nul(one));
  return texts;
}

// Of YAML all scalars are strings.
std::uint32_t gid_of(const JsonValue& value) {
  const auto text = value.is_text() ? value.text() : value.raw().dump();
  std::uint32_t gid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gid);
  if (error != std::errc() || end != text.data() + text.size()) value.refuse("is no number of a group");
  return gid;
}

CdiEdits read_edits(const JsonValue& from) {
  CdiEdits edits;
  for (const auto& variable : from.maybe("env").items()) {
    edits.env.push_back(text_without_nul(variable));
    if (const auto& text = edits.env.back(); text.find('=') == text.npos || text.starts_with('='))
      variable.refuse(fmt::format("is '{:.100}', which is no NAME=value", text));
  }
  for (const auto& node : from.maybe("deviceNodes").items()) {
    CdiDeviceNode device{.path = needed_path(node["path"]),
                         .host_path = absolute_path(node.maybe("hostPath")),
                         .permissions = text_without_nul(node.maybe("permissions"))};
    if (device.host_path.empty()) device.host_path = device.path;
    if (device.permissions.find_first_not_of("rwm") != std::string::npos)
      node["permissions"].refuse("has letters that are none of r, w and m");
    edits.devices.push_back(std::move(device));
  }
  for (const auto& mount : from.maybe("mounts").items())
    edits.mounts.push_back({.host_path = needed_path(mount["hostPath"]),
                            .container_path = needed_path(mount["containerPath"]),
                            .options = texts_without_nul(mount.maybe("options"))});
  for (const auto& hook : from.maybe("hooks").items())
    edits.hooks.push_back({.name = needed_text(hook["hookName"]),
                           .path = needed_path(hook["path"]),
                           .args = texts_without_nul(hook.maybe("args")),
                           .env = texts_without_nul(hook.maybe("env"))});
  for (const auto& gid : from.maybe("additionalGids").items()) edits.additional_gids.push_back(gid_of(gid));
  return edits;
}

// A thing of the same place in the session is there once; the later one counts, as a device's own edits come after the
// file's.
template <typename List, typename Key>
void merge(List& list, const List& more, const Key& key) {
  for (const auto& one : more) {
    const auto found = std::ranges::find_if(list, [&](const auto& other) { return key(other) == key(one); });
    if (found == list.end()) {
      list.push_back(one);
    } else {
      *found = one;
    }
  }
}

void merge_edits(CdiEdits& edits, const CdiEdits& more) {
  merge(edits.env, more.env, [](const std::string& one) { return one.substr(0, one.find('=')); });
  merge(edits.devices, more.devices, [](const CdiDeviceNode& one) { return one.path; });
  merge(edits.mounts, more.mounts, [](const CdiMount& one) { return one.container_path; });
  merge(edits.hooks, more.hooks, [](const CdiHook& one) { return std::tuple(one.name, one.path, one.args); });
  merge(edits.additional_gids, more.additional_gids, [](std::uint32_t one) { return one; });
}

bool is_name(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";
  return !text.empty() && text.find_first_not_of(kAllowed) == text.npos;
}

}  // namespace

CdiDocument parse_cdi(std::string_view text, bool yaml, std::string_view what) {
  const auto parsed = parse_cdi_text(text, yaml, what);
  CdiDocument document;
  needed_text(parsed["cdiVersion"]);
  document.kind = needed_text(parsed["kind"]);
  const auto slash = document.kind.find('/');
  if (slash == std::string::npos || !is_name(document.kind.substr(0, slash)) ||
      !is_name(document.kind.substr(slash + 1)))
    parsed["kind"].refuse(fmt::format("is '{:.100}', not of the form vendor/class", document.kind));
  document.common = read_edits(parsed.maybe("containerEdits"));
  for (const auto& device : parsed.maybe("devices").items()) {
    const auto name = needed_text(device["name"]);
    if (!is_name(name)) device["name"].refuse(fmt::format("is '{:.100}', which is no name of a device", name));
    if (!document.devices.emplace(name, read_edits(device.maybe("containerEdits"))).second)
      device["name"].refuse(fmt::format("is '{}', which stands there twice", name));
  }
  return document;
}

std::vector<std::filesystem::path> CdiRegistry::default_dirs() { return {"/etc/cdi", "/var/run/cdi"}; }

CdiRegistry CdiRegistry::read(const std::vector<std::filesystem::path>& dirs) {
  CdiRegistry registry;
  for (const auto& dir : dirs) {
    std::error_code error;
    std::set<std::filesystem::path> files;  // in the same order everywhere
    for (std::filesystem::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
      const auto extension = at->path().extension();
      if (extension == ".json" || extension == ".yaml" || extension == ".yml") files.insert(at->path());
      if (files.size() > kMaxCdiFiles)
        fail<Unsupported>("{}: more than {} device specifications", dir.string(), kMaxCdiFiles);
    }
    for (const auto& file : files) {
      try {
        registry.add_file(file);
      } catch (const std::exception& problem) {
        registry.problems_.emplace_back(problem.what());
      }
    }
  }
  return registry;
}

void CdiRegistry::add_file(const std::filesystem::path& file) {
  const auto bytes = read_file_if_there(file, kMaxCdiFileBytes);
  if (!bytes) return;
  auto document = parse_cdi(as_text(*bytes), file.extension() != ".json", file.string());
  for (auto& [name, edits] : document.devices)
    devices_.insert_or_assign(document.kind + "=" + name, Device{.file = common_.size(), .edits = std::move(edits)});
  common_.push_back(std::move(document.common));
}

std::vector<std::string> CdiRegistry::devices(std::string_view kind) const {
  std::vector<std::string> names;
  const auto prefix = std::string(kind) + "=";
  for (auto at = devices_.lower_bound(prefix); at != devices_.end() && at->first.starts_with(prefix); ++at)
    names.push_back(at->first.substr(prefix.size()));
  return names;
}

CdiEdits CdiRegistry::edits(const std::vector<std::string>& qualified_names) const {
  CdiEdits edits;
  std::set<std::size_t> files;
  for (const auto& name : qualified_names) {
    const auto found = devices_.find(name);
    if (found == devices_.end()) {
      std::string known;
      for (const auto& [other, device] : devices_) known += (known.empty() ? "" : ", ") + other;
      fail<NotFound>("no device {:.200} on this machine; there {}", name, known.empty() ? "are none" : "are " + known);
    }
    if (files.insert(found->second.file).second) merge_edits(edits, common_[found->second.file]);
    merge_edits(edits, found->second.edits);
  }
  return edits;
}

}  // namespace varve::fuse
