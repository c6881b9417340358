#include <algorithm>
#include <array>
#include <limits>

#include <nlohmann/json.hpp>

#include "analyzer/cuda/manifest.h"
#include "core/base/errors.h"
#include "core/base/utf8.h"

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

class ManifestReader {
 public:
  ManifestReader(std::string_view text, std::string_view what) : what_(what) {
    if (text.size() > kMaxManifestBytes)
      fail<Unsupported>("{}: {} bytes, the limit is {}", what, text.size(), kMaxManifestBytes);
    std::size_t values = 0;
    const auto check = [&](int depth, json::parse_event_t, json&) {
      if (depth > kMaxDepth) fail<CorruptData>("{}: nested deeper than {}", what_, kMaxDepth);
      if (++values > kMaxManifestValues) fail<Unsupported>("{}: more than {} JSON values", what_, kMaxManifestValues);
      return true;
    };
    try {
      document_ = json::parse(text, check);
    } catch (const json::parse_error& error) {
      fail<CorruptData>("{}: no valid JSON at byte {}", what, error.byte);
    } catch (const json::exception&) {
      fail<CorruptData>("{}: JSON with a number out of range", what);
    }
    if (!document_.is_object())
      fail<CorruptData>("{}: a JSON {} where an object is expected", what, document_.type_name());
  }

  Manifest read() {
    if (member(document_, "", "format") != json(kFormat)) fail<Unsupported>("{}: \"format\" is not {}", what_, kFormat);
    only(document_, "",
         {"format", "image", "rules", "config_sha256", "config", "files", "resolved", "unresolved", "missing"});
    Manifest manifest;
    manifest.image = digest(document_, "", "image");
    manifest.rules = digest(document_, "", "rules");
    manifest.config_digest = digest(document_, "", "config_sha256");
    for (const auto& [name, value] : of_type(document_, "", "config", json::value_t::object).items()) {
      if (!value.is_string()) fail<CorruptData>("{}: \"config.{:.100}\" must be a string", what_, name);
      manifest.config.emplace(name, text_of(value, "config." + name));
    }
    if (config_digest(manifest.config) != manifest.config_digest)
      fail<CorruptData>("{}: \"config_sha256\" is not that of \"config\"", what_);
    const auto& files = of_type(document_, "", "files", json::value_t::array);
    manifest.files.reserve(files.size());
    for (std::size_t i = 0; i < files.size(); ++i) {
      manifest.files.push_back(file(files[i], fmt::format("files[{}]", i)));
      if (i > 0 && manifest.files[i - 1].path >= manifest.files[i].path)
        fail<CorruptData>("{}: files[{}]: paths are not in order", what_, i);
    }
    for (const auto& [key, value] : of_type(document_, "", "resolved", json::value_t::object).items())
      manifest.resolved.emplace(from_text(key, "resolved"), names_of(value, "resolved"));
    manifest.unresolved = names_of(of_type(document_, "", "unresolved", json::value_t::array), "unresolved");
    if (!std::ranges::is_sorted(manifest.unresolved)) fail<CorruptData>("{}: \"unresolved\" is not in order", what_);
    manifest.missing = names_of(of_type(document_, "", "missing", json::value_t::array), "missing");
    return manifest;
  }

 private:
  std::string place(std::string_view where, std::string_view name) const {
    return where.empty() ? std::string(name) : fmt::format("{}.{}", where, name);
  }

  const json& member(const json& object, std::string_view where, const char* name) const {
    const auto found = object.find(name);
    if (found == object.end()) fail<CorruptData>("{}: \"{}\" is missing", what_, place(where, name));
    return *found;
  }
  const json& of_type(const json& object, std::string_view where, const char* name, json::value_t type) const {
    const auto& value = member(object, where, name);
    if (value.type() != type)
      fail<CorruptData>("{}: \"{}\" must be an {}", what_, place(where, name),
                        type == json::value_t::array ? "array" : "object");
    return value;
  }
  void only(const json& object, std::string_view where, const std::vector<std::string_view>& names) const {
    for (const auto& [name, value] : object.items())
      if (std::ranges::find(names, name) == names.end())
        fail<CorruptData>("{}: \"{:.100}\" is not known", what_, place(where, name));
  }
  std::string text_of(const json& value, std::string_view where) const {
    if (!value.is_string()) fail<CorruptData>("{}: \"{}\" must be a string", what_, where);
    const auto& text = value.get_ref<const std::string&>();
    if (text.size() > kMaxManifestText)
      fail<CorruptData>("{}: \"{}\" has more than {} bytes", what_, where, kMaxManifestText);
    return text;
  }
  std::string text(const json& object, std::string_view where, const char* name) const {
    return text_of(member(object, where, name), place(where, name));
  }
  Digest digest(const json& object, std::string_view where, const char* name) const {
    return Digest::parse(text(object, where, name), fmt::format("{}: \"{}\"", what_, place(where, name)));
  }
  template <typename Number>
  Number number(const json& object, std::string_view where, const char* name) const {
    const auto& value = member(object, where, name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::numeric_limits<Number>::max())
      fail<CorruptData>("{}: \"{}\" must be a number from 0 to {}", what_, place(where, name),
                        std::numeric_limits<Number>::max());
    return Number(value.get<std::uint64_t>());
  }

  std::string from_text(std::string_view text, std::string_view where) const {
    std::string bytes;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        bytes += text[i];
      } else if (text.substr(i).starts_with("\\\\")) {
        bytes += '\\';
        ++i;
      } else {
        const auto digit = [](char c) {
          return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        };
        if (i + 3 >= text.size() || text[i + 1] != 'x' || digit(text[i + 2]) < 0 || digit(text[i + 3]) < 0)
          fail<CorruptData>("{}: \"{}\": a '\\' that begins nothing known", what_, where);
        bytes += char(digit(text[i + 2]) * 16 + digit(text[i + 3]));
        i += 3;
      }
    }
    return bytes;
  }
  std::vector<std::string> names_of(const json& list, std::string_view where) const {
    if (!list.is_array()) fail<CorruptData>("{}: \"{}\" must be an array", what_, where);
    std::vector<std::string> names;
    for (const auto& value : list) names.push_back(from_text(text_of(value, where), where));
    return names;
  }
  std::string hex(const json& object, std::string_view where, const char* name) const {
    auto value = text(object, where, name);
    if (!value.empty() && (value.size() != 64 || value.find_first_not_of("0123456789abcdef") != std::string::npos))
      fail<CorruptData>("{}: \"{}\" must be 64 hex digits or empty", what_, place(where, name));
    return value;
  }

  ManifestFile file(const json& object, const std::string& where) const {
    if (!object.is_object()) fail<CorruptData>("{}: \"{}\" must be an object", what_, where);
    only(object, where, {"path", "type", "mode", "uid", "gid", "size", "sha256", "target", "xattrs", "rule"});
    ManifestFile file;
    file.path = from_text(text(object, where, "path"), where);
    file.type = text(object, where, "type");
    constexpr std::array<std::string_view, 4> kTypes = {"file", "symlink", "directory", "other"};
    if (std::ranges::find(kTypes, file.type) == kTypes.end())
      fail<CorruptData>("{}: \"{}\" is no type", what_, place(where, "type"));
    if (file.path.empty() || file.path.front() == '/')
      fail<CorruptData>("{}: \"{}\" must be a path without leading '/'", what_, place(where, "path"));
    file.mode = number<std::uint32_t>(object, where, "mode");
    file.uid = number<std::uint32_t>(object, where, "uid");
    file.gid = number<std::uint32_t>(object, where, "gid");
    if (object.contains("size")) file.size = number<std::uint64_t>(object, where, "size");
    if (object.contains("sha256")) file.sha256 = hex(object, where, "sha256");
    if (object.contains("target")) file.target = from_text(text(object, where, "target"), where);
    if (object.contains("xattrs")) file.xattrs = hex(object, where, "xattrs");
    file.rule = from_text(text(object, where, "rule"), where);
    return file;
  }

  std::string_view what_;
  json document_;
};

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

Manifest parse_manifest(std::string_view json, std::string_view what) { return ManifestReader(json, what).read(); }

}  // namespace varve::cuda
