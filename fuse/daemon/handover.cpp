#include "fuse/daemon/handover.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/text/base64.h"
#include "core/base/text/json_document.h"
#include "fuse/control/control_protocol.h"

namespace varve::fuse {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 8;
constexpr std::size_t kMaxValues = 1 << 20;

std::string packed(const Bytes& bytes) { return base64_encode(as_text(bytes)); }

// A path that is used as it stands.
std::filesystem::path full_path(const JsonValue& value) {
  std::filesystem::path path = value.text();
  if (!path.is_absolute() || path.string().find('\0') != std::string::npos) value.refuse("is no full path");
  return path;
}

template <typename Read>
auto list_of(const JsonValue& list, const Read& read) {
  std::vector<decltype(read(list))> entries;
  for (const auto& entry : list.items()) entries.push_back(read(entry));
  return entries;
}

json to_json(const HandoverImage& image) {
  return {{"digest", image.digest.to_string()},
          {"spec", image.spec},
          {"index", image.index.to_string()},
          {"layers", image.layers},
          {"tree", image.tree ? json(image.tree->to_string()) : json(nullptr)}};
}

HandoverImage read_image(const JsonValue& from) {
  HandoverImage image{
      .digest = from["digest"].digest(), .spec = read_image_spec(from["spec"]), .index = from["index"].digest()};
  image.layers = from.maybe("layers").number<std::uint32_t>();
  if (const auto tree = from.maybe("tree")) image.tree = tree.digest();
  return image;
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

HandoverConnection read_connection(const JsonValue& from) {
  HandoverConnection connection{.name = from["name"].text(),
                                .dir = full_path(from["dir"]),
                                .init_request = from["init_request"].base64(),
                                .by_helper = from["by_helper"].flag(),
                                .tree = std::nullopt,
                                .files = {}};
  if (const auto tree = from.maybe("tree")) connection.tree = tree.digest();
  connection.files = list_of(from["files"], [](const JsonValue& entry) {
    return HandoverFiles{.index = entry["index"].digest(), .opened = read_message<std::vector<bool>>(entry["opened"])};
  });
  return connection;
}

// Of the monotonic clock, which all daemons of a machine share until it starts anew; so long lives no record.
std::int64_t seconds_of(IdleTime time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

std::optional<std::uint64_t> read_missing(const JsonValue& from) {
  if (!from) return std::nullopt;
  return from.number<std::uint64_t>();
}

std::optional<IdleTime> read_idle_since(const JsonValue& from) {
  if (!from) return std::nullopt;
  return IdleTime(std::chrono::seconds(from.number<std::uint32_t>()));
}

template <typename T>
json to_list(const std::vector<T>& list, json (*one)(const T&)) {
  json array = json::array();
  for (const auto& entry : list) array.push_back(one(entry));
  return array;
}

}  // namespace

Digest name_of_tree(const Digest& index, std::uint32_t layers) {
  if (layers == 0) return index;
  return digest_of(fmt::format("varve tree of the first {} layers by {}", layers, index.to_string()));
}

std::string encode_handover(const Handover& handover) {
  json document = {{"format", kHandoverFormat}};
  document["images"] = to_list<HandoverImage>(handover.images, to_json);
  document["connections"] = to_list<HandoverConnection>(handover.connections, to_json);
  document["mounts"] = to_list<HandoverMount>(handover.mounts, [](const HandoverMount& mount) -> json {
    return {{"dir", mount.dir.string()},
            {"index", mount.index.to_string()},
            {"connection", mount.connection},
            {"mode", to_string(mount.mode)},
            {"why", mount.why},
            {"shared", mount.shared},
            {"fill", mount.fill},
            {"missing_at_first", mount.missing_at_first ? json(*mount.missing_at_first) : json(nullptr)},
            {"idle_since", mount.idle_since ? json(seconds_of(*mount.idle_since)) : json(nullptr)}};
  });
  document["names"] = to_list<HandoverName>(handover.names, [](const HandoverName& name) -> json {
    return {
        {"dir", name.dir.string()}, {"mount", name.mount.string()}, {"bound", name.bound}, {"settled", name.settled}};
  });
  document["leases"] = to_list<HandoverLease>(handover.leases, [](const HandoverLease& lease) -> json {
    return {{"mount", lease.mount.string()}, {"pid", lease.holder.pid}, {"start_time", lease.holder.start_time}};
  });
  document["holds"] = to_list<HandoverHold>(handover.holds, [](const HandoverHold& hold) -> json {
    return {{"name", hold.name}, {"mount", hold.mount.string()}};
  });
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Handover decode_handover(std::string_view text) {
  const auto document =
      JsonValue::parse(text, "handover", {.bytes = kMaxHandoverBytes, .depth = kMaxDepth, .values = kMaxValues});
  const auto format = document["format"].number<int>();
  if (format < kOldestHandoverFormat || format > kHandoverFormat)
    fail<Unsupported>("handover: format {}, known are {} to {}", format, kOldestHandoverFormat, kHandoverFormat);
  return {.images = list_of(document["images"], read_image),
          .connections = list_of(document["connections"], read_connection),
          .mounts = list_of(document["mounts"],
                            [](const JsonValue& entry) {
                              return HandoverMount{.dir = full_path(entry["dir"]),
                                                   .index = entry["index"].digest(),
                                                   .connection = entry["connection"].text(),
                                                   .mode = parse_mount_mode(entry["mode"].text()),
                                                   .why = entry["why"].text(),
                                                   .shared = entry["shared"].flag(),
                                                   .fill = entry.maybe("fill").flag(),
                                                   .missing_at_first = read_missing(entry.maybe("missing_at_first")),
                                                   .idle_since = read_idle_since(entry.maybe("idle_since"))};
                            }),
          .names = list_of(document["names"],
                           [](const JsonValue& entry) {
                             return HandoverName{.dir = full_path(entry["dir"]),
                                                 .mount = full_path(entry["mount"]),
                                                 .bound = entry["bound"].flag(),
                                                 .settled = entry["settled"].flag()};
                           }),
          .leases = list_of(document["leases"],
                            [](const JsonValue& entry) {
                              return HandoverLease{.mount = full_path(entry["mount"]),
                                                   .holder = {.pid = entry["pid"].number<pid_t>(),
                                                              .start_time = entry["start_time"].number()}};
                            }),
          .holds = format < 5 ? std::vector<HandoverHold>() : list_of(document["holds"], [](const JsonValue& entry) {
            return HandoverHold{.name = entry["name"].text(), .mount = full_path(entry["mount"])};
          })};
}

}  // namespace varve::fuse
