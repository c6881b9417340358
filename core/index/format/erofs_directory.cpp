// The part of ErofsReader that reads directories, and the check of a whole tree, which is mostly directories.
#include <algorithm>
#include <exception>
#include <future>

#include "core/base/errors.h"
#include "core/index/format/erofs.h"
#include "core/index/format/internal/erofs_format.h"
#include "core/index/format/internal/erofs_inode.h"

namespace varve::index {

using namespace erofs;

namespace {

// A block holds fewer than 64 entries of at least 13 bytes.
constexpr std::uint64_t kPositionsPerBlock = 64;
constexpr std::size_t kWorthAThread = 1 << 20;  // bytes of a tree
constexpr std::uint64_t kMostSharing = 64;  // so many times a tree's bytes may have attributes, each time they are read

}  // namespace

std::string_view ErofsReader::DirectoryBlock::name(std::size_t entry) const {
  const auto offset_at = [this](std::size_t i) { return load_le<std::uint16_t>(bytes.data() + i * kDirentBytes + 8); };
  const std::size_t begin = offset_at(entry);
  const std::size_t end = entry + 1 < count ? offset_at(entry + 1) : bytes.size();
  if (begin < count * kDirentBytes || begin >= end || end > bytes.size())
    reader->corrupt(directory, "names of its entries overlap");
  auto name = as_text(bytes.subspan(begin, end - begin));
  if (entry + 1 == count) name = name.substr(0, name.find('\0'));  // the rest of a full block is zeros
  if (name.empty() || name.size() > kMaxName) reader->corrupt(directory, "an entry with a name of impossible length");
  return name;
}

FileType ErofsReader::DirectoryBlock::type(std::size_t entry) const {
  const auto type = std::uint8_t(bytes[entry * kDirentBytes + 10]);
  if (type == 0 || type > std::uint8_t(FileType::kSymlink) || type == 6)
    reader->corrupt(directory, "an entry of unknown type");
  return FileType(type);
}

ErofsReader::Inode ErofsReader::parse_directory(Nid nid) const {
  const auto inode = parse(nid);
  if (inode.info.type != FileType::kDirectory) corrupt(nid, "no directory");
  if (inode.info.size == 0 || inode.layout == Layout::kChunkBased) corrupt(nid, "a directory without entries");
  if (inode.info.size > image_.size()) corrupt(nid, "a directory larger than the image");
  return inode;
}

ErofsReader::DirectoryBlock ErofsReader::directory_block(const Inode& directory, std::uint64_t block) const {
  DirectoryBlock result{.reader = this, .directory = directory.nid, .bytes = flat_content(directory, block)};
  if (result.bytes.size() <= kDirentBytes) corrupt(directory.nid, "a block of entries that is too short");
  const auto names_at = load_le<std::uint16_t>(result.bytes.data() + 8);
  if (names_at < kDirentBytes || names_at % kDirentBytes != 0 || names_at >= result.bytes.size())
    corrupt(directory.nid, "a block with an impossible number of entries");
  result.count = names_at / kDirentBytes;
  return result;
}

std::optional<Nid> ErofsReader::lookup(Nid directory, std::string_view name) const {
  if (name.empty() || name.size() > kMaxName) return std::nullopt;
  const auto inode = parse_directory(directory);
  // The last block whose first name is not greater than the one we look for.
  std::uint64_t low = 0;
  std::uint64_t high = blocks_of(inode.info.size);
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    (directory_block(inode, middle).name(0) <= name ? low : high) = middle;
  }
  const auto block = directory_block(inode, low);
  std::size_t first = 0;
  std::size_t last = block.count;
  while (first < last) {
    const auto middle = first + (last - first) / 2;
    const auto order = block.name(middle).compare(name);
    if (order == 0) return block.nid(middle);
    if (order < 0) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return std::nullopt;
}

template <typename OnEntry>
void ErofsReader::visit_directory(const Inode& directory, std::uint64_t from, const OnEntry& entry) const {
  auto first = from % kPositionsPerBlock;
  for (auto block = from / kPositionsPerBlock; block < blocks_of(directory.info.size); ++block, first = 0) {
    const auto entries = directory_block(directory, block);
    for (auto i = first; i < entries.count; ++i) {
      if (!entry(entries.name(i), entries.nid(i), entries.type(i), block * kPositionsPerBlock + i)) return;
    }
  }
}

void ErofsReader::read_directory(Nid directory, std::uint64_t from, const EntryCallback& entry) const {
  visit_directory(parse_directory(directory), from, entry);
}

struct ErofsReader::CheckState {
  std::vector<bool> seen;
  std::map<Nid, std::uint64_t> links;         // names found of inodes with several
  std::vector<std::pair<Nid, Nid>> to_visit;  // a directory and its parent
  std::uint64_t inodes = 0;
  // In a tree of ours no two inodes share bytes. In a hostile one thousands could name the same large area, and reading
  // it for each of them would never end.
  std::uint64_t own_bytes_left = 0;
  std::uint64_t shared_bytes_left = 0;  // of attributes: a pair may be read once for each inode that has it
};

void ErofsReader::charge(const Inode& inode, std::uint64_t& bytes_left, std::uint64_t bytes) const {
  if (bytes > bytes_left) corrupt(inode.nid, "more content than the image has room for");
  bytes_left -= bytes;
}

void ErofsReader::check_attributes(const Inode& inode, std::uint64_t& bytes_left) const {
  for (const auto& [name, value] : xattrs_of(inode)) charge(inode, bytes_left, name.size() + value.size());
}

void ErofsReader::check_devices() const {
  for (std::uint32_t device = 1; device <= devices_; ++device) {
    if (device_tag(device).empty()) fail<CorruptData>("{}: device {} has no tag", what_, device);
  }
}

void ErofsReader::check_rest(const std::vector<Nid>& with_attributes) const {
  check_devices();
  auto bytes_left = image_.size() * kMostSharing;
  for (const auto nid : with_attributes) check_attributes(parse(nid), bytes_left);
}

void ErofsReader::check_content(const Inode& inode, CheckState& state) const {
  charge(inode, state.own_bytes_left, kCompactBytes + inode.xattr_bytes);
  check_attributes(inode, state.shared_bytes_left);
  if (inode.info.type == FileType::kRegular) {
    if (inode.info.size == 0) return;
    charge(inode, state.own_bytes_left, chunks_of(inode.info.size, chunk_bits(inode.union_value)) * kChunkIndexBytes);
    visit_chunks(inode, [](const DeviceRun&) {});
  } else if (inode.info.type == FileType::kSymlink) {
    charge(inode, state.own_bytes_left, inode.info.size);
    target_of(inode);
  } else if (inode.info.type == FileType::kDirectory) {
    charge(inode, state.own_bytes_left, inode.info.size);
  }
}

// Reports what is wrong with one directory and its children; finds the directories below it.
void ErofsReader::check_directory(CheckState& state) const {
  const auto [self, parent] = state.to_visit.back();
  state.to_visit.pop_back();
  const auto directory = parse_directory(self);
  std::string_view previous;
  std::uint64_t subdirectories = 0;
  unsigned dots = 0;
  visit_directory(
      directory, 0,
      [&, self = self, parent = parent](std::string_view name, Nid nid, FileType type, std::uint64_t position) {
        if (position != 0 && name <= previous) corrupt(self, "entries out of order");
        previous = name;
        if (name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos)
          corrupt(self, "an entry with an impossible name");
        if (is_dot(name)) {
          ++dots;
          if (nid != (name == "." ? self : parent) || type != FileType::kDirectory)
            corrupt(self, "\".\" or \"..\" leads elsewhere");
          return true;
        }
        const auto child = parse(nid);
        if (child.info.type != type) corrupt(nid, "an entry says another type");
        const bool is_new = !state.seen[nid];
        state.seen[nid] = true;
        if (type == FileType::kDirectory) {
          if (!is_new) corrupt(nid, "a directory with two names");
          ++subdirectories;
          state.to_visit.emplace_back(nid, self);
        } else if (child.info.nlink > 1) {
          ++state.links[nid];
        } else if (!is_new || child.info.nlink == 0) {
          corrupt(nid, "wrong number of links");
        }
        if (!is_new) return true;
        ++state.inodes;
        check_content(child, state);
        return true;
      });
  if (dots != 2) corrupt(self, "\".\" or \"..\" is missing");
  if (directory.info.nlink != subdirectories + 2) corrupt(self, "wrong number of links");
}

void ErofsReader::check() const {
  // Beside each other, as one takes about as long as the other.
  const auto policy = image_.size() >= kWorthAThread ? std::launch::async : std::launch::deferred;
  auto intact = std::async(policy, [this] { return is_intact(); });
  std::exception_ptr wrong;
  try {
    check_files();
  } catch (...) {
    wrong = std::current_exception();
  }
  if (!intact.get()) fail<CorruptData>("{}: the content does not match the UUID", what_);
  if (wrong) std::rethrow_exception(wrong);
}

void ErofsReader::check_files() const {
  check_devices();
  CheckState state{.seen = std::vector<bool>(nid_end()),
                   .links = {},
                   .to_visit = {{root_, root_}},
                   .inodes = 1,
                   .own_bytes_left = image_.size(),
                   .shared_bytes_left = image_.size() * kMostSharing};
  state.seen[root_] = true;
  check_content(parse(root_), state);
  while (!state.to_visit.empty()) check_directory(state);
  for (const auto& [nid, names] : state.links) {
    if (inode(nid).nlink != names) corrupt(nid, "wrong number of links");
  }
  if (state.inodes != inodes_) fail<CorruptData>("{}: {} inodes found, {} declared", what_, state.inodes, inodes_);
}

}  // namespace varve::index
