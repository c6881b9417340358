#pragma once
// The files of an image as the package readers see them: names, sizes, layers, and the content of the few that are
// read.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/byte_range.h"
#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/index/format/layer_entries.h"

namespace varve::packages {

inline constexpr std::uint64_t kMaxMetadataBytes = 64u << 20;  // a RECORD of 10^5 files has 15 MB

struct SourceFile {
  index::FileType type =
      index::FileType::kRegular;  // never kHardLink: a hard link is a regular file of its own name here
  std::uint64_t size = 0;
  std::uint32_t layer = 0;             // that gave it; 0 for a plain folder
  std::uint64_t compressed_bytes = 0;  // its share of its layer's blob, tar header and padding included
  bool first_name = true;              // false: a further name of an inode that is counted under another one
  std::uint32_t mode = 0;
  std::string symlink_target;
};

// A regular file or symlink that a layer holds and nobody sees, because that or an upper layer hides it.
struct HiddenFile {
  std::string path;  // as its layer names it
  SourceFile file;
  std::uint32_t by_layer = 0;
  bool deleted = false;       // by a whiteout; else replaced
  bool same_content = false;  // replaced by the very same bytes (a file that only changed its owner, mode or time)
};

struct SourceLayer {
  Digest digest;
  std::uint64_t compressed_bytes = 0;
  std::uint64_t stream_bytes = 0;
  std::string created_by;
};

// Random access to one file; valid during the call that gives it. Throws CorruptData for ranges outside the file, and
// what the source throws.
using RangeReader = std::function<Bytes(ByteRange range)>;

// Not shared between threads.
class FileSource {
 public:
  virtual ~FileSource() = default;
  // Paths without leading "/", in byte order. The whole tree after merging.
  virtual const std::map<std::string, SourceFile, std::less<>>& files() const = 0;
  // Content of regular files, symbolic links not followed. All at once, so that one pass over each layer serves them;
  // called back in any order. A file above `limit_bytes`, and what is no regular file of the source, is given as empty
  // optional. Throws what the source throws.
  virtual void read(const std::vector<std::string>& paths, std::uint64_t limit_bytes,
                    const std::function<void(const std::string& path, std::optional<Bytes> content)>& got) const = 0;
  // For files too large to be read whole. Throws NotFound if there is no such regular file, Unsupported where the
  // source can only be read from its start (an image without an index).
  virtual void read_ranges(const std::string& path,
                           const std::function<void(const RangeReader& read_at)>& use) const = 0;
  virtual std::vector<SourceLayer> layers() const = 0;  // base first; empty for a plain folder
  virtual std::vector<HiddenFile> hidden() const = 0;   // empty for a plain folder
  virtual std::optional<Digest> image() const = 0;
  virtual std::map<std::string, std::string> environment() const = 0;  // the image config's Env
  virtual std::string architecture() const = 0;                        // "amd64" as OCI writes it
};

}  // namespace varve::packages
