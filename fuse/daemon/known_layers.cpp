#include "fuse/daemon/known_layers.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/log.h"

namespace varve::fuse {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxRecordBytes = 64 * 1024;

json to_json(const oci::Descriptor& blob) {
  return {{"media_type", blob.media_type}, {"digest", blob.digest.to_string()}, {"size", blob.size}};
}

oci::Descriptor descriptor_from(const json& from) {
  oci::Descriptor blob;
  blob.media_type = from.at("media_type").get<std::string>();
  blob.digest = Digest::parse(from.at("digest").get<std::string>());
  blob.size = from.at("size").get<std::uint64_t>();
  return blob;
}

}  // namespace

KnownLayers::KnownLayers(std::filesystem::path dir) : dir_(std::move(dir)) {
  std::filesystem::create_directories(dir_);
}

void KnownLayers::remember(const index::LayerIndexBlobs& blobs) {
  json record{
      {"layer", blobs.layer_digest.to_string()}, {"map", to_json(blobs.map)}, {"entries", to_json(blobs.entries)}};
  if (blobs.windows) record["windows"] = to_json(*blobs.windows);
  const auto text = record.dump();
  const auto path = file_of(blobs.layer_digest, blobs.map.digest);
  const auto old = read_file_if_there(path, kMaxRecordBytes);
  if (old && as_text(*old) == text) return;
  write_file_atomically(path, as_bytes(text));
}

std::filesystem::path KnownLayers::file_of(const Digest& layer, const std::optional<Digest>& map) const {
  return dir_ / (map ? layer.hex() + '-' + map->hex() : layer.hex());
}

std::optional<index::LayerIndexBlobs> KnownLayers::find(const Digest& layer, const std::optional<Digest>& map) const {
  const auto path = file_of(layer, map);
  try {
    const auto bytes = read_file_if_there(path, kMaxRecordBytes);
    if (!bytes) return std::nullopt;
    const auto record = json::parse(as_text(*bytes));
    index::LayerIndexBlobs blobs;
    blobs.layer_digest = Digest::parse(record.at("layer").get<std::string>());
    blobs.map = descriptor_from(record.at("map"));
    blobs.entries = descriptor_from(record.at("entries"));
    if (record.contains("windows")) blobs.windows = descriptor_from(record["windows"]);
    if (blobs.layer_digest != layer) fail<CorruptData>("names layer {}", blobs.layer_digest.to_string());
    if (map && blobs.map.digest != *map) fail<CorruptData>("names map {}", blobs.map.digest.to_string());
    return blobs;
  } catch (const std::exception& error) {
    log::warn("{}: {}", path.string(), error.what());
    return std::nullopt;
  }
}

}  // namespace varve::fuse
