#pragma once
// Files as those see them who look for packages: an image's tree or a plain folder, and the content of the few that are
// read.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/index/merge/flat_tree.h"

namespace varve::index {

struct SourceLayer {
  Digest digest;
  std::uint64_t compressed_bytes = 0;
  std::uint64_t stream_bytes = 0;
  std::string created_by;
};

// Where the files come from.
struct SourceFacts {
  std::optional<Digest> image;  // absent for a plain folder
  bool indexed = false;
  std::vector<SourceLayer> layers;                 // base first; empty for a plain folder
  std::map<std::string, std::string> environment;  // the image config's Env; of equal names the last counts
  std::string architecture;                        // "amd64" as OCI writes it
};

// `stream_bytes` per layer.
SourceFacts facts_of(const oci::Image& image, const std::vector<std::uint64_t>& stream_bytes, bool indexed);

// What a source cost.
struct FetchTally {
  std::uint64_t bytes = 0;     // compressed side, of layers and index blobs; what lay here already is not counted
  std::uint64_t requests = 0;  // of layers and windows
};

// Random access to one file; valid during the call that gives it. Throws CorruptData for ranges outside the file, and
// what the source throws.
using RangeReader = std::function<Bytes(ByteRange range)>;
// Absent: no regular file of the source, or too large.
using OnContent = std::function<void(const std::string& path, std::optional<Bytes> content)>;

// Not shared between threads.
class FileSource {
 public:
  virtual ~FileSource() = default;
  virtual const FlatTree& tree() const = 0;
  virtual const SourceFacts& facts() const = 0;
  // Content of regular files up to `limit_bytes`, symbolic links not followed. All at once, so that one pass over each
  // layer serves them; called back in any order. Throws what the source throws.
  virtual void read(const std::vector<std::string>& paths, std::uint64_t limit_bytes, const OnContent& got) const = 0;
  // For files too large to be read whole. Throws NotFound if there is no such regular file, Unsupported where the
  // source can only be read from its start (an image without an index).
  virtual void read_ranges(const std::string& path,
                           const std::function<void(const RangeReader& read_at)>& use) const = 0;
  virtual FetchTally fetched() const { return {}; }
};

}  // namespace varve::index
