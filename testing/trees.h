#pragma once
// For tests of the tree: a tree of everything that is hard, files that play the layer streams, and what a reader or a
// mount shows.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/index/format/erofs.h"

namespace varve::test {

using namespace varve::index;

// One inode as somebody sees it.
struct Seen {
  InodeInfo info;
  std::string target;
  std::map<std::string, std::string> xattrs;
  std::string first_name;  // of all paths that lead to the same inode, the smallest
};
bool operator==(const Seen& a, const Seen& b);
std::string describe(const Seen& seen);

// By the kernel, of a path itself; `first_name` is left to who knows others. Throws Error.
Seen seen_at(const std::filesystem::path& path);

// By path; the root is "".
using Listing = std::map<std::string, Seen>;
Listing listing_of(const Tree& tree);
Listing listing_of(const ErofsReader& reader);
// Reports each difference as a test failure, the first ones in words.
void expect_same(const Listing& expected, const Listing& actual);

// Layers as sparse files in a folder: bytes are made where runs point to, a pattern that no two places share.
class FakeLayers {
 public:
  FakeLayers(const std::filesystem::path& dir, std::vector<std::uint64_t> stream_bytes);
  const std::vector<std::uint64_t>& stream_bytes() const { return stream_bytes_; }
  std::vector<std::string> tags() const;
  const std::vector<std::filesystem::path>& files() const { return files_; }
  // Writes the pattern under the runs of every file of the tree (whole if small, around their edges otherwise).
  void fill(const Tree& tree) const;
  // The ranges device as a file.
  std::filesystem::path make_ranges_file(const RangesDevice& ranges) const;
  // What a file of the tree holds at an offset.
  std::string expected(const TreeInode& file, std::uint64_t offset, std::uint64_t length) const;

 private:
  std::filesystem::path dir_;
  std::vector<std::uint64_t> stream_bytes_;
  std::vector<std::filesystem::path> files_;
};

// Where a file's content is worth comparing: everything if it is small, else around the edges of its runs.
std::vector<ByteRange> places_to_compare(const TreeInode& file);

std::shared_ptr<TreeInode> make_file(std::uint64_t size, std::vector<TreeRun> runs);
std::shared_ptr<TreeInode> make_directory();
std::shared_ptr<TreeInode> make_symlink(std::string target);
// Puts an inode under a path, making directories on the way.
void put(Tree& tree, const std::string& path, std::shared_ptr<TreeInode> inode);
std::shared_ptr<TreeInode> find(const Tree& tree, const std::string& path);

// Everything that is hard, over three layers of these sizes. `many`: entries of the large directory.
std::vector<std::uint64_t> sizes_of_horrors();
Tree malformed_tree(std::size_t many);

}  // namespace varve::test
