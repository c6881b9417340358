#include "fuse/daemon/handover.h"

#include <charconv>
#include <limits>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "core/base/base64.h"
#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/json_shape.h"
#include "fuse/daemon/control_protocol.h"

namespace varve::fuse {
namespace {

using nlohmann::json;

constexpr std::string_view kWhat = "handover";
constexpr int kMaxDepth = 8;
constexpr std::size_t kMaxValues = 1 << 20;

std::string packed(const Bytes& bytes) { return base64_encode(as_text(bytes)); }

template <typename T>
T field(const json& from, const char* name) {
  const auto found = from.find(name);
  if (found == from.end()) fail<CorruptData>("{}: no field {}", kWhat, name);
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    if (!found->is_number_integer() || *found < std::numeric_limits<T>::min() || *found > std::numeric_limits<T>::max())
      fail<CorruptData>("{}: field {} is no number that it can be", kWhat, name);
  }
  try {
    return found->get<T>();
  } catch (const json::exception&) {
    fail<CorruptData>("{}: field {} is of the wrong type", kWhat, name);
  }
}

Digest digest_field(const json& from, const char* name) { return Digest::parse(field<std::string>(from, name), kWhat); }

Bytes bytes_field(const json& from, const char* name) {
  const auto bytes = base64_decode(field<std::string>(from, name));
  if (!bytes) fail<CorruptData>("{}: field {} is no base64", kWhat, name);
  return to_bytes(as_bytes(*bytes));
}

// A path that is used as it stands.
std::filesystem::path path_field(const json& from, const char* name) {
  std::filesystem::path path = field<std::string>(from, name);
  if (!path.is_absolute() || path.string().find('\0') != std::string::npos)
    fail<CorruptData>("{}: field {} is no full path", kWhat, name);
  return path;
}

template <typename Read>
auto list_field(const json& from, const char* name, Read&& read) {
  std::vector<decltype(read(from))> list;
  for (const auto& entry : field<json::array_t>(from, name)) list.push_back(read(entry));
  return list;
}

json to_json(const HandoverImage& image) {
  return {{"digest", image.digest.to_string()}, {"spec", fuse::to_json(image.spec)},
          {"media_type", image.media_type},     {"manifest", packed(image.manifest)},
          {"config", packed(image.config)},     {"index", image.index.to_string()}};
}

HandoverImage image_from_json(const json& from) {
  return {.digest = digest_field(from, "digest"),
          .spec = image_spec_from_json(field<json>(from, "spec")),
          .media_type = field<std::string>(from, "media_type"),
          .manifest = bytes_field(from, "manifest"),
          .config = bytes_field(from, "config"),
          .index = digest_field(from, "index")};
}

json to_json(const HandoverConnection& connection) {
  json files = json::array();
  for (const auto& image : connection.files)
    files.push_back({{"index", image.index.to_string()}, {"opened", image.opened}});
  return {{"name", connection.name},
          {"dir", connection.dir.string()},
          {"init_request", packed(connection.init_request)},
          {"by_helper", connection.by_helper},
          {"tree", connection.tree ? json(connection.tree->to_string()) : json(nullptr)},
          {"files", std::move(files)}};
}

HandoverConnection connection_from_json(const json& from) {
  HandoverConnection connection{.name = field<std::string>(from, "name"),
                                .dir = path_field(from, "dir"),
                                .init_request = bytes_field(from, "init_request"),
                                .by_helper = field<bool>(from, "by_helper"),
                                .tree = std::nullopt,
                                .files = {}};
  if (!field<json>(from, "tree").is_null()) connection.tree = digest_field(from, "tree");
  connection.files = list_field(from, "files", [](const json& entry) {
    return HandoverFiles{.index = digest_field(entry, "index"), .opened = field<std::vector<bool>>(entry, "opened")};
  });
  return connection;
}

template <typename T>
json list_of(const std::vector<T>& list, json (*one)(const T&)) {
  json array = json::array();
  for (const auto& entry : list) array.push_back(one(entry));
  return array;
}

}  // namespace

std::string encode_handover(const Handover& handover) {
  json document = {{"format", kHandoverFormat}};
  document["images"] = list_of<HandoverImage>(handover.images, to_json);
  document["connections"] = list_of<HandoverConnection>(handover.connections, to_json);
  document["mounts"] = list_of<HandoverMount>(handover.mounts, [](const HandoverMount& mount) -> json {
    return {{"dir", mount.dir.string()},
            {"index", mount.index.to_string()},
            {"connection", mount.connection},
            {"mode", to_string(mount.mode)},
            {"why", mount.why},
            {"shared", mount.shared}};
  });
  document["names"] = list_of<HandoverName>(handover.names, [](const HandoverName& name) -> json {
    return {
        {"dir", name.dir.string()}, {"mount", name.mount.string()}, {"bound", name.bound}, {"settled", name.settled}};
  });
  document["leases"] = list_of<HandoverLease>(handover.leases, [](const HandoverLease& lease) -> json {
    return {{"mount", lease.mount.string()}, {"pid", lease.holder.pid}, {"start_time", lease.holder.start_time}};
  });
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Handover decode_handover(std::string_view text) {
  check_json_shape(text, kMaxDepth, kMaxValues, kWhat);
  json document;
  try {
    document = json::parse(text);
  } catch (const json::exception& error) {
    fail<CorruptData>("{}: {}", kWhat, error.what());
  }
  if (const auto format = field<int>(document, "format"); format != kHandoverFormat)
    fail<Unsupported>("{}: format {}, known is {}", kWhat, format, kHandoverFormat);
  Handover handover;
  handover.images = list_field(document, "images", image_from_json);
  handover.connections = list_field(document, "connections", connection_from_json);
  handover.mounts = list_field(document, "mounts", [](const json& entry) {
    return HandoverMount{.dir = path_field(entry, "dir"),
                         .index = digest_field(entry, "index"),
                         .connection = field<std::string>(entry, "connection"),
                         .mode = parse_mount_mode(field<std::string>(entry, "mode")),
                         .why = field<std::string>(entry, "why"),
                         .shared = field<bool>(entry, "shared")};
  });
  handover.names = list_field(document, "names", [](const json& entry) {
    return HandoverName{.dir = path_field(entry, "dir"),
                        .mount = path_field(entry, "mount"),
                        .bound = field<bool>(entry, "bound"),
                        .settled = field<bool>(entry, "settled")};
  });
  handover.leases = list_field(document, "leases", [](const json& entry) {
    return HandoverLease{
        .mount = path_field(entry, "mount"),
        .holder = {.pid = field<pid_t>(entry, "pid"), .start_time = field<std::uint64_t>(entry, "start_time")}};
  });
  return handover;
}

std::optional<LeaseHolder> find_holder(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  std::optional<Bytes> stat;
  try {
    stat = read_file_if_there(fmt::format("/proc/{}/stat", pid));
  } catch (const std::system_error&) {  // ESRCH: it ends while we look
  }
  if (!stat) return std::nullopt;
  // "PID (NAME) STATE ..." where NAME may hold anything; the start time is the 22nd field of all, the 20th behind the
  // name.
  auto text = as_text(*stat);
  const auto name_end = text.rfind(')');
  if (name_end == text.npos) return std::nullopt;
  text.remove_prefix(std::min(name_end + 2, text.size()));
  if (text.starts_with('Z') || text.starts_with('X')) return std::nullopt;
  for (int field = 0; field < 19; ++field) text.remove_prefix(std::min(text.find(' '), text.size() - 1) + 1);
  LeaseHolder holder{.pid = pid};
  if (std::from_chars(text.data(), text.data() + text.size(), holder.start_time).ec != std::errc()) return std::nullopt;
  return holder;
}

}  // namespace varve::fuse
