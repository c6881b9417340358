#include "indexer/internal/finished_layers.h"

#include <nlohmann/json.hpp>

#include "core/base/files/file.h"
#include "core/base/files/private_folder.h"
#include "core/base/log.h"
#include "core/base/text/json_document.h"

namespace varve::indexer {
namespace {

constexpr std::size_t kMaxStateBytes = 64 * 1024;

}  // namespace

FinishedLayers::FinishedLayers(std::filesystem::path dir) : dir_(std::move(dir)) { make_private_folder(dir_); }

std::optional<WrittenLayer> FinishedLayers::find(const Digest& key) const {
  const auto bytes = read_file_if_there(file(key), kMaxStateBytes);
  if (!bytes) return std::nullopt;
  try {
    const auto state = JsonValue::parse(*bytes, file(key).string());
    WrittenLayer layer;
    layer.media_type = state["mediaType"].text();
    layer.annotations = state["annotations"].texts_by_name();
    layer.digest = state["digest"].digest();
    layer.diff_id = state["diffId"].digest();
    layer.compressed_bytes = state["size"].number();
    layer.stream_bytes = state["streamBytes"].number();
    layer.without_table = state["withoutTable"].text();
    return layer;
  } catch (const std::exception& error) {
    log::debug("{}", error.what());  // of a crashed machine, say: then it is written again
    return std::nullopt;
  }
}

void FinishedLayers::remember(const Digest& key, const WrittenLayer& layer) {
  const nlohmann::json state{{"mediaType", layer.media_type},      {"annotations", layer.annotations},
                             {"digest", layer.digest.to_string()}, {"diffId", layer.diff_id.to_string()},
                             {"size", layer.compressed_bytes},     {"streamBytes", layer.stream_bytes},
                             {"withoutTable", layer.without_table}};
  write_file_atomically(file(key), as_bytes(state.dump()), 0600);
  remembered_.push_back(key);
}

void FinishedLayers::forget() {
  std::error_code ignored;
  for (const auto& key : remembered_) std::filesystem::remove(file(key), ignored);
  std::filesystem::remove(dir_, ignored);  // if that was all
}

}  // namespace varve::indexer
