#pragma once
// How an image was packed into layers: kept beside the image, so that its next version reuses them. An artifact whose subject is the image;
// docs/format-layout-record.md.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "core/index/placement.h"
#include "core/oci/image.h"

namespace varve::indexer {

inline constexpr std::string_view kLayoutRecordArtifactType = "application/vnd.varve.layout-record.v1";
inline constexpr std::size_t kMaxLayoutRecordBytes = 64u << 20;

struct RecordedComponent {
  std::string version;
  index::Heat heat = index::Heat::kSystem;
  Digest content;                  // over its entries: attributes and content digests, in path order. Equal = the same tar bytes
  std::uint64_t bytes = 0;         // stream side
  std::uint32_t releases = 1;      // that it was seen in, since it was first
  std::uint32_t changes = 0;       // of these, how often its content was another than before: its change rate
};

struct RecordedLayer {
  Digest digest;                   // of the blob
  Digest diff_id;
  std::uint64_t compressed_bytes = 0;
  std::uint64_t stream_bytes = 0;
  bool taken_over = false;         // a layer of the image as it was, untouched
  index::Heat heat = index::Heat::kSystem;
  std::string writer;              // format, level and version of what wrote it: only layers of the same writer are taken again
  std::map<std::string, RecordedComponent> components;  // empty for one taken over
};

struct LayoutRecord {
  Digest image;
  std::vector<RecordedLayer> layers;  // base first
};

std::string to_json(const LayoutRecord& record);
LayoutRecord parse_layout_record(std::string_view json, std::string_view what);  // throws CorruptData naming what is wrong

// Absent if the image has none. Throws CorruptData if what is there is none.
std::optional<LayoutRecord> find_layout_record(const oci::Image& image);
void publish_layout_record(oci::Repository& repository, const oci::Descriptor& image, const LayoutRecord& record);

}  // namespace varve::indexer
