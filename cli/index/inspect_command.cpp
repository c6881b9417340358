#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/text.h"
#include "cli/command.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"
#include "core/index/index_sources.h"
#include "core/index/local_index.h"

namespace varve::cli {
namespace {

// What the index knows of a layer; without an index the media type has to do, which may be wrong.
struct LayerRow {
  oci::Descriptor descriptor;
  std::string format;
  std::shared_ptr<const index::LayerMap> map;
};

std::string format_from_media_type(const oci::Descriptor& layer) {
  const auto type = oci::parse_layer_media_type(layer.media_type);
  if (!type) return "unknown";
  switch (type->compression) {
    case oci::LayerCompression::kNone:
      return "tar";
    case oci::LayerCompression::kGzip:
      return "gzip";
    case oci::LayerCompression::kZstd:
      return "zstd";
  }
  return "unknown";
}

// Where the index lies for other machines to find.
struct IndexLocation {
  std::string kind;        // "beside-image", "index-from" or "this-machine"; "" = there is no index
  std::string repository;  // its name; "" = on this machine only
  std::string other;       // of "this-machine": the digest of another index that is offered, "" = none is
};

struct Inspection {
  oci::Image image;
  std::optional<index::ImageIndexBlobs> index;
  IndexLocation location;
  std::string refusal;              // why the index is not believed, "" if it is
  std::uint64_t cold_bytes = 0;     // stream side
  std::uint64_t profile_bytes = 0;  // stream side
  std::size_t packs = 0;
  std::uint64_t pack_bytes = 0;  // compressed
  std::vector<LayerRow> layers;
};

// Of the sources that offer it the first, as machines look for it.
IndexLocation locate(const oci::Image& image, const Digest& index_manifest) {
  IndexLocation location{.kind = "this-machine", .repository = {}, .other = {}};
  const auto troubles = index::visit_index_sources(image, [&](const index::IndexSource& source) {
    bool is_there = false;
    index::visit_indexes(*source.repository, image, [&](const index::FoundIndex& found) {
      is_there = found.blobs.manifest.digest == index_manifest;
      if (!is_there && location.other.empty()) location.other = found.blobs.manifest.digest.to_string();
      return is_there;
    });
    if (is_there)
      location = {.kind = source.index_from.empty() ? "beside-image" : "index-from",
                  .repository = source.repository->name(),
                  .other = {}};
    return is_there;
  });
  // "Nowhere else" would be a guess while one could not be asked.
  if (location.kind == "this-machine" && !troubles.empty()) std::rethrow_exception(troubles.front());
  return location;
}

Inspection inspect(Context& context, const std::string& reference) {
  Inspection result{.image = context.open_image(reference),
                    .index = {},
                    .location = {},
                    .refusal = {},
                    .cold_bytes = 0,
                    .profile_bytes = 0,
                    .packs = 0,
                    .pack_bytes = 0,
                    .layers = {}};
  auto local = context.local_index();
  result.index = local.find_index(result.image);
  if (!result.index) {
    if (auto offered = index::find_offered(result.image)) result.index = std::move(offered->blobs);
  }
  std::optional<index::LoadedIndex> loaded;
  if (result.index) {
    try {
      loaded = index::load_index(local, result.image);
      result.index = loaded->blobs;
    } catch (const trust::Untrusted& error) {
      result.refusal = error.what();
    }
  }
  if (result.index) result.location = locate(result.image, result.index->manifest.digest);
  if (loaded) {
    result.cold_bytes = loaded->cold.bytes();
    result.profile_bytes = loaded->profile.bytes();
    result.packs = loaded->packs.groups.size();
    for (const auto& blob : loaded->blobs.packs) result.pack_bytes += blob.size;
  }
  for (std::size_t i = 0; i < result.image.manifest.layers.size(); ++i) {
    const auto& descriptor = result.image.manifest.layers[i];
    auto map = loaded ? loaded->maps.at(i) : nullptr;
    auto format = map ? std::string(index::to_string(map->format)) : format_from_media_type(descriptor);
    result.layers.push_back({descriptor, std::move(format), std::move(map)});
  }
  return result;
}

nlohmann::json to_json(const Inspection& inspection) {
  auto layers = nlohmann::json::array();
  for (const auto& layer : inspection.layers) {
    nlohmann::json row{{"digest", layer.descriptor.digest.to_string()},
                       {"media_type", layer.descriptor.media_type},
                       {"format", layer.format},
                       {"compressed_bytes", layer.descriptor.size},
                       {"indexed", layer.map != nullptr}};
    if (layer.map) {
      row["stream_bytes"] = layer.map->stream_bytes;
      row["spans"] = layer.map->spans.size();
      row["windows_bytes"] = layer.map->windows_bytes;
    }
    layers.push_back(std::move(row));
  }
  nlohmann::json document{{"image", inspection.image.digest().to_string()},
                          {"media_type", inspection.image.document.descriptor.media_type},
                          {"platform", inspection.image.config.platform.to_string()},
                          {"indexed", inspection.index.has_value()},
                          {"index", nullptr},
                          {"index_location", nullptr},
                          {"index_repository", nullptr},
                          {"layers", std::move(layers)}};
  if (inspection.index) {
    document["index"] = inspection.index->manifest.digest.to_string();
    document["index_location"] = inspection.location.kind;
    if (!inspection.location.repository.empty()) document["index_repository"] = inspection.location.repository;
    document["believed"] = inspection.refusal.empty();
    document["indexed_by"] = inspection.index->tool;
    document["generation"] = inspection.index->generation;
    document["cold_bytes"] = inspection.cold_bytes;
    document["profile_bytes"] = inspection.profile_bytes;
    document["packs"] = inspection.packs;
    document["pack_bytes"] = inspection.pack_bytes;
    document["seeds_bytes"] = inspection.index->seeds ? inspection.index->seeds->size : 0;
    document["tree_bytes"] = inspection.index->tree_bytes;
    document["index_bytes"] = inspection.index->index_bytes();
    document["first_load_bytes"] = inspection.index->first_load_bytes();
  }
  return document;
}

std::string text_of(const IndexLocation& location, const oci::Image& image) {
  if (location.kind == "beside-image") return "beside the image";
  if (location.kind == "index-from") return fmt::format("in {}, not beside the image", printable(location.repository));
  const auto advice = fmt::format("`varve index {}` puts it there", printable(image.typed()));
  if (location.other.empty()) return "on this machine only, not beside the image: " + advice;
  return fmt::format("on this machine only; other machines find {}: {}", location.other, advice);
}

void print(const Inspection& inspection, std::ostream& out) {
  out << fmt::format("image     {}\nplatform  {}\n", inspection.image.digest().to_string(),
                     inspection.image.config.platform.to_string());
  if (inspection.index) {
    out << fmt::format("index     {}\n          by {}; {}, of which {} before a mount is usable\n",
                       inspection.index->manifest.digest.to_string(), printable(inspection.index->tool),
                       human_bytes(inspection.index->index_bytes()), human_bytes(inspection.index->first_load_bytes()));
    out << fmt::format("          {}\n", text_of(inspection.location, inspection.image));
    if (!inspection.refusal.empty()) out << "          not believed here: " << printable(inspection.refusal) << '\n';
    if (inspection.cold_bytes != 0)
      out << fmt::format("cold      {} uncompressed: left out of `varve pull`\n", human_bytes(inspection.cold_bytes));
    if (inspection.profile_bytes != 0)
      out << fmt::format("profile   {} uncompressed: what start-ups read, fetched ahead when it is mounted\n",
                         human_bytes(inspection.profile_bytes));
    if (inspection.packs != 0)
      out << fmt::format("packs     {} of {}: each is fetched when the start begins that it was learnt from\n",
                         inspection.packs, human_bytes(inspection.pack_bytes));
    if (inspection.index->seeds)
      out << fmt::format("seeds     {}: what the version before it has of its layers is read there\n",
                         human_bytes(inspection.index->seeds->size));
  } else {
    out << fmt::format("index     none: `varve index {}` makes one\n", printable(inspection.image.typed()));
  }
  std::vector<std::vector<std::string>> rows{{"LAYER", "FORMAT", "COMPRESSED", "UNPACKED", "PIECES"}};
  for (const auto& layer : inspection.layers)
    rows.push_back({layer.descriptor.digest.to_string(), layer.format, human_bytes(layer.descriptor.size),
                    layer.map ? human_bytes(layer.map->stream_bytes) : "?",
                    layer.map ? fmt::format("{}", layer.map->spans.size()) : "?"});
  print_table(out, rows);
}

}  // namespace

void add_inspect_command(CLI::App& app, Context& context) {
  const auto image = std::make_shared<std::string>();
  auto* command = app.add_subcommand(
      "inspect", "Shows an image's layers, their formats and sizes, and whether and by whom it is indexed");
  command->add_option("IMAGE", *image, "The image: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG]")->required();
  command->footer(
      "Example:\n  varve inspect oci:image:latest\n\n"
      "Formats of an image without index are what its media types claim; indexing looks at the bytes.");
  command->callback([&context, image] {
    const auto inspection = inspect(context, *image);
    if (context.global.json) {
      context.print_json(to_json(inspection));
    } else {
      print(inspection, context.out);
    }
  });
}

}  // namespace varve::cli
