#include "fuse/session/cdi.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <yaml-cpp/yaml.h>
#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/file.h"

namespace varve::fuse {
namespace {

using nlohmann::json;
constexpr int kMaxDepth = 32;

// YAML as the JSON it would be, every scalar a string: what is a number is known by whoever reads it.
class YamlToJson {
 public:
  explicit YamlToJson(std::string_view what) : what_(what) {}
  json convert(const YAML::Node& node, int depth = 0) {
    if (++nodes_ > kMaxCdiNodes || depth > kMaxDepth)
      fail<CorruptData>("{}: is too large or too deep to be a device specification", what_);
    switch (node.Type()) {
      case YAML::NodeType::Sequence: {
        auto list = json::array();
        for (const auto& one : node) list.push_back(convert(one, depth + 1));
        return list;
      }
      case YAML::NodeType::Map: {
        auto object = json::object();
        for (const auto& pair : node) object[pair.first.Scalar()] = convert(pair.second, depth + 1);
        return object;
      }
      case YAML::NodeType::Scalar:
        return node.Scalar();
      default:
        return nullptr;
    }
  }

 private:
  std::string_view what_;
  std::size_t nodes_ = 0;
};

json parse_document(std::string_view text, bool yaml, std::string_view what) {
  if (!yaml) {
    std::size_t nodes = 0;
    const auto within = [&](int depth, json::parse_event_t, json&) {
      if (++nodes > kMaxCdiNodes || depth > kMaxDepth)
        fail<CorruptData>("{}: is too large or too deep to be a device specification", what);
      return true;
    };
    try {
      return json::parse(text, within);
    } catch (const json::exception& error) {
      fail<CorruptData>("{}: is no JSON: {}", what, error.what());
    }
  }
  try {
    return YamlToJson(what).convert(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& error) {
    fail<CorruptData>("{}:{}: is no YAML: {}", what, error.mark.line + 1, error.msg);
  }
}

// The fields of one object; what a newer specification adds is passed over, as it says.
class Fields {
 public:
  Fields(const json& object, std::string_view what, std::string place)
      : object_(object), what_(what), place_(std::move(place)) {
    if (!object.is_object()) wrong("", "is no object");
  }
  std::string text(const char* name, bool needed = false) const {
    const auto* value = find(name, needed);
    if (value == nullptr) return {};
    if (!value->is_string()) wrong(name, "is no text");
    auto result = value->get<std::string>();
    if (result.find('\0') != result.npos) wrong(name, "holds a NUL");
    if (needed && result.empty()) wrong(name, "is empty");
    return result;
  }
  std::string path(const char* name, bool needed) const {
    auto result = text(name, needed);
    if (!result.empty() && !result.starts_with('/')) wrong(name, "is no absolute path");
    return result;
  }
  std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> list;
    for (const auto& one : array(name)) {
      if (!one.is_string() || one.get_ref<const std::string&>().find('\0') != std::string::npos)
        wrong(name, "holds something that is no text");
      list.push_back(one.get<std::string>());
    }
    return list;
  }
  std::vector<std::uint32_t> numbers(const char* name) const {
    std::vector<std::uint32_t> list;
    for (const auto& one : array(name)) {
      const auto text = one.is_string() ? one.get<std::string>() : one.dump();
      std::uint32_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size()) wrong(name, "holds something that is no number");
      list.push_back(value);
    }
    return list;
  }
  template <typename Take>
  void each(const char* name, const Take& take) const {
    std::size_t number = 0;
    for (const auto& one : array(name)) take(Fields(one, what_, fmt::format("{}{}[{}].", place_, name, number++)));
  }
  std::optional<Fields> object(const char* name) const {
    const auto* value = find(name, false);
    if (value == nullptr) return std::nullopt;
    return Fields(*value, what_, place_ + name + ".");
  }
  [[noreturn]] void wrong(std::string_view name, std::string_view why) const {
    fail<CorruptData>("{}: {}{} {}", what_, place_, name, why);
  }

 private:
  const json* find(const char* name, bool needed) const {
    const auto found = object_.find(name);
    if (found == object_.end() || found->is_null()) {
      if (needed) wrong(name, "is missing");
      return nullptr;
    }
    return &*found;
  }
  const json& array(const char* name) const {
    static const json empty = json::array();
    const auto* value = find(name, false);
    if (value == nullptr) return empty;
    if (!value->is_array()) wrong(name, "is no list");
    return *value;
  }
  const json& object_;
  std::string_view what_;
  std::string place_;
};

CdiEdits read_edits(const std::optional<Fields>& fields) {
  CdiEdits edits;
  if (!fields) return edits;
  edits.env = fields->texts("env");
  for (const auto& one : edits.env)
    if (one.find('=') == one.npos || one.starts_with('='))
      fields->wrong("env", fmt::format("holds '{:.100}', which is no NAME=value", one));
  fields->each("deviceNodes", [&](const Fields& node) {
    CdiDeviceNode device{.path = node.path("path", true),
                         .host_path = node.path("hostPath", false),
                         .permissions = node.text("permissions")};
    if (device.host_path.empty()) device.host_path = device.path;
    if (device.permissions.find_first_not_of("rwm") != std::string::npos)
      node.wrong("permissions", "has letters that are none of r, w and m");
    edits.devices.push_back(std::move(device));
  });
  fields->each("mounts", [&](const Fields& mount) {
    edits.mounts.push_back({.host_path = mount.path("hostPath", true),
                            .container_path = mount.path("containerPath", true),
                            .options = mount.texts("options")});
  });
  fields->each("hooks", [&](const Fields& hook) {
    edits.hooks.push_back({.name = hook.text("hookName", true),
                           .path = hook.path("path", true),
                           .args = hook.texts("args"),
                           .env = hook.texts("env")});
  });
  edits.additional_gids = fields->numbers("additionalGids");
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
  const auto parsed = parse_document(text, yaml, what);
  const Fields fields(parsed, what, "");
  CdiDocument document;
  fields.text("cdiVersion", true);
  document.kind = fields.text("kind", true);
  const auto slash = document.kind.find('/');
  if (slash == std::string::npos || !is_name(document.kind.substr(0, slash)) ||
      !is_name(document.kind.substr(slash + 1)))
    fields.wrong("kind", fmt::format("'{:.100}' is not of the form vendor/class", document.kind));
  document.common = read_edits(fields.object("containerEdits"));
  fields.each("devices", [&](const Fields& device) {
    const auto name = device.text("name", true);
    if (!is_name(name)) device.wrong("name", fmt::format("'{:.100}' is no name of a device", name));
    if (!document.devices.emplace(name, read_edits(device.object("containerEdits"))).second)
      device.wrong("name", fmt::format("'{}' stands there twice", name));
  });
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
