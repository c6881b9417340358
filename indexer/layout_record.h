#pragma once
// How an image was packed into layers: kept beside the image, so that its next version reuses them. An artifact whose
// subject is the image; docs/formats/layout-record.md.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "core/index/merge/placement.h"
#include "core/oci/image.h"

namespace varve::indexer {

inline constexpr std::string_view kLayoutRecordArtifactType = "application/vnd.varve.layout-record.v1";
inline constexpr std::string_view kLayoutRecordMediaType = "application/vnd.varve.layout-record.v1+json";
inline constexpr std::size_t kMaxLayoutRecordBytes = 64u << 20;
inline constexpr std::size_t kMaxRecordedComponents = 200'000;
inline constexpr std::size_t kMaxComponentNameBytes = 4200;  // "folder:" and a path

struct RecordedComponent {
  std::string version;
  index::Tier tier = index::Tier::kSystem;
  Digest content;  // over its entries: ComponentFacts::content. Equal = the same tar bytes
  std::optional<Digest> timeless = std::nullopt;  // ComponentFacts::timeless; absent in records of before it was kept
  std::uint64_t bytes = 0;                        // stream side
  std::uint32_t releases = 1;                     // that it was seen in, since it was first
  std::uint32_t changes =
      0;  // of these, how often its content was another than before: its change rate. Always below `releases`
  bool operator==(const RecordedComponent&) const = default;
};

struct RecordedLayer {
  Digest digest;  // of the blob
  Digest diff_id;
  std::uint64_t compressed_bytes = 0;
  std::uint64_t stream_bytes = 0;
  bool kept_as_is = false;         // a layer of the image as it was, untouched
  bool times_of_previous = false;  // files in it have the times of an earlier version (and bytecode names those)
  index::Tier tier = index::Tier::kSystem;
  std::string writer;  // format, level and version of what wrote it: only layers of the same writer are taken again
  std::map<std::string, RecordedComponent>
      components;  // empty for one kept as is, and for the one of shared directories
  bool operator==(const RecordedLayer&) const = default;
};

struct LayoutRecord {
  Digest image;
  std::vector<RecordedLayer> layers;  // base first
  // Later times of files, and of what config and manifest call "created", were set back to this: seconds since 1970.
  std::optional<std::int64_t> latest_time = std::nullopt, latest_created = std::nullopt;
  bool operator==(const LayoutRecord&) const = default;
};

// The same record gives the same bytes. Throws UsageError for a component's name or version that is no UTF-8.
std::string to_json(const LayoutRecord& record);
// Throws CorruptData or Unsupported (limits) naming `what` and what is wrong.
LayoutRecord parse_layout_record(std::string_view json, std::string_view what);

// Absent if the image has none. Of several, the one that looks back on the most releases, and of these the one whose
// artifact has the smallest digest: all machines choose the same. Those that are damaged or do not fit the image are
// passed over; throws CorruptData if there is no other.
std::optional<LayoutRecord> find_layout_record(const oci::Image& image);
// Content first, then the artifact that names it. `image` is the descriptor of its manifest.
void publish_layout_record(oci::Repository& repository, const oci::Descriptor& image, const LayoutRecord& record);

}  // namespace varve::indexer
