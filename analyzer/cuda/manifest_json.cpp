#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "analyzer/cuda/manifest.h"
#include "core/base/errors.h"
#include "core/base/text/json_document.h"
#include "core/base/text/strings.h"
#include "core/base/text/utf8.h"

namespace varve::cuda {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr int kMaxDepth = 4;

// Names in an image are bytes; JSON holds text.
std::string to_text(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto length = utf8_length(bytes);
    if (length == 0) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes.front()));
    } else if (bytes.front() == '\\') {
      text += "\\\\";
    } else {
      text += bytes.substr(0, length);
    }
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return text;
}

// What to_text() made of a name.
std::string from_text(const JsonValue& value, std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
    } else if (text.substr(i).starts_with("\\\\")) {
      bytes += '\\';
      ++i;
    } else {
      if (i + 3 >= text.size() || text[i + 1] != 'x' || hex_digit(text[i + 2]) < 0 || hex_digit(text[i + 3]) < 0)
        value.refuse("has a '\\' that begins nothing known");
      bytes += char(hex_digit(text[i + 2]) * 16 + hex_digit(text[i + 3]));
      i += 3;
    }
  }
  return bytes;
}

std::string decoded(const JsonValue& value) { return from_text(value, value.text(kMaxManifestText)); }

std::vector<std::string> decoded_list(const JsonValue& list) {
  std::vector<std::string> names;
  for (const auto& name : list.items()) names.push_back(decoded(name));
  return names;
}

std::string hex_of(const JsonValue& value) {
  auto hex = value.text();
  if (!hex.empty() && (hex.size() != 64 || hex.find_first_not_of("0123456789abcdef") != std::string::npos))
    value.refuse("must be 64 hex digits or empty");
  return hex;
}

ManifestFile file_of(const JsonValue& object) {
  object.only({"path", "type", "mode", "uid", "gid", "size", "sha256", "target", "xattrs", "rule"});
  ManifestFile file;
  file.path = decoded(object["path"]);
  file.type = object["type"].text();
  constexpr std::array<std::string_view, 4> kTypes = {"file", "symlink", "directory", "other"};
  if (std::ranges::find(kTypes, file.type) == kTypes.end()) object["type"].refuse("is no type");
  if (file.path.empty() || file.path.front() == '/') object["path"].refuse("must be a path without leading '/'");
  file.mode = object["mode"].number<std::uint32_t>();
  file.uid = object["uid"].number<std::uint32_t>();
  file.gid = object["gid"].number<std::uint32_t>();
  file.size = object.maybe("size").number();
  file.sha256 = hex_of(object.maybe("sha256"));
  file.target = decoded(object.maybe("target"));
  file.xattrs = hex_of(object.maybe("xattrs"));
  file.rule = decoded(object["rule"]);
  return file;
}

json texts(const std::vector<std::string>& list) {
  auto array = json::array();
  for (const auto& one : list) array.push_back(to_text(one));
  return array;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  // One file and one need a line, so that two manifests can be compared with diff.
  std::string text = "{\n";
  const auto line = [&](const char* name, const json& value, bool last = false) {
    text += fmt::format("\"{}\": {}{}\n", name, value.dump(), last ? "" : ",");
  };
  line("format", kFormat);
  line("image", manifest.image.to_string());
  line("rules", manifest.rules.to_string());
  line("config_sha256", manifest.config_digest.to_string());
  line("config", manifest.config);
  text += "\"files\": [";
  const char* separator = "\n";
  for (const auto& file : manifest.files) {
    nlohmann::ordered_json object{
        {"path", to_text(file.path)}, {"type", file.type}, {"mode", file.mode}, {"uid", file.uid}, {"gid", file.gid}};
    if (file.type == "file") object["size"] = file.size;
    if (!file.sha256.empty()) object["sha256"] = file.sha256;
    if (!file.target.empty()) object["target"] = to_text(file.target);
    if (!file.xattrs.empty()) object["xattrs"] = file.xattrs;
    object["rule"] = to_text(file.rule);
    text += separator + object.dump();
    separator = ",\n";
  }
  text += "\n],\n\"resolved\": {";
  separator = "\n";
  for (const auto& [key, matches] : manifest.resolved) {
    text += separator + json(to_text(key)).dump() + ": " + texts(matches).dump();
    separator = ",\n";
  }
  text += "\n},\n";
  line("unresolved", texts(manifest.unresolved));
  line("missing", texts(manifest.missing), true);
  return text + "}\n";
}

Manifest parse_manifest(std::string_view json, std::string_view what) {
  const auto document =
      JsonValue::parse(json, what, {.bytes = kMaxManifestBytes, .depth = kMaxDepth, .values = kMaxManifestValues});
  if (document["format"].raw() != kFormat) fail<Unsupported>("{}: \"format\" is not {}", what, kFormat);
  document.only({"format", "image", "rules", "config_sha256", "config", "files", "resolved", "unresolved", "missing"});
  Manifest manifest;
  manifest.image = document["image"].digest();
  manifest.rules = document["rules"].digest();
  manifest.config_digest = document["config_sha256"].digest();
  for (const auto& [name, value] : document["config"].members())
    manifest.config.emplace(name, value.text(kMaxManifestText));
  if (config_digest(manifest.config) != manifest.config_digest)
    document["config_sha256"].refuse("is not that of \"config\"");
  const auto files = document["files"].items();
  manifest.files.reserve(files.size());
  for (const auto& file : files) {
    manifest.files.push_back(file_of(file));
    if (manifest.files.size() > 1 && manifest.files.end()[-2].path >= manifest.files.back().path)
      file.refuse("is out of order (by path)");
  }
  for (const auto& [key, value] : document["resolved"].members())
    manifest.resolved.emplace(from_text(value, key), decoded_list(value));
  manifest.unresolved = decoded_list(document["unresolved"]);
  if (!std::ranges::is_sorted(manifest.unresolved)) document["unresolved"].refuse("is not in order");
  manifest.missing = decoded_list(document["missing"]);
  return manifest;
}

}  // namespace varve::cuda
