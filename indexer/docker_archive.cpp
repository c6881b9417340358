// The file that `docker save` makes: a tar of the config, one plain tar per layer and manifest.json, which names them.
// What of it others read: docs/guide/pins-and-export.md.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <array>
#include <charconv>
#include <exception>
#include <set>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/codec/blob_decoder.h"
#include "core/codec/tar_block.h"
#include "core/index/format/layer_map.h"
#include "core/oci/source_turns.h"
#include "indexer/export_image.h"

namespace varve::indexer {
namespace {

constexpr std::uint64_t kMaxOctalSize =
    077777777777;  // eleven digits; beyond that GNU's binary form, which Go, GNU tar and libarchive read

struct TarField {
  std::size_t offset;
  std::size_t digits;
};
constexpr TarField kMode{100, 7}, kUid{108, 7}, kGid{116, 7}, kMtime{136, 11}, kChecksum{148, 6};
constexpr std::size_t kSizeOffset = 124;
constexpr std::size_t kTypeOffset = 156;

void put_octal(std::array<char, codec::kTarBlock>& block, TarField field, std::uint64_t value) {
  for (std::size_t i = field.digits; i-- > 0; value >>= 3) block[field.offset + i] = char('0' + (value & 7));
}

// A ustar header of a regular file, the same for the same name and size whoever writes it and when.
std::array<char, codec::kTarBlock> tar_header(std::string_view name, std::uint64_t size) {
  std::array<char, codec::kTarBlock> block{};
  std::ranges::copy(name, block.begin());
  put_octal(block, kMode, 0644);
  put_octal(block, kUid, 0);
  put_octal(block, kGid, 0);
  put_octal(block, kMtime, 0);
  if (size <= kMaxOctalSize) {
    put_octal(block, {kSizeOffset, 11}, size);
  } else {
    block[kSizeOffset] = char(0x80);
    for (std::size_t i = 0; i < 8; ++i) block[kSizeOffset + 11 - i] = char(size >> (8 * i) & 0xFF);
  }
  block[kTypeOffset] = '0';
  std::ranges::copy(std::string_view("ustar\00000", 8), block.begin() + codec::kTarMagicOffset);
  std::ranges::fill_n(block.begin() + kChecksum.offset, 8, ' ');
  std::uint64_t sum = 0;
  for (const char c : block) sum += std::uint8_t(c);
  put_octal(block, kChecksum, sum);
  block[kChecksum.offset + kChecksum.digits] = '\0';
  return block;
}

// Writes members one after the other into a file that appears at the end.
class TarFile {
 public:
  explicit TarFile(const std::filesystem::path& path) : file_(path) {}

  void begin(std::string name) {
    name_ = std::move(name);
    header_offset_ = offset_;
    member_bytes_ = 0;
    write(tar_header(name_, 0));
    member_bytes_ = 0;
  }

  void add(ByteView bytes) {
    file_.write(bytes);
    offset_ += bytes.size();
    member_bytes_ += bytes.size();
  }

  // As after begin(): what came of the member was wrong.
  void begin_again() {
    offset_ = header_offset_ + codec::kTarBlock;
    member_bytes_ = 0;
    if (::ftruncate(file_.fd(), off_t(offset_)) != 0 || ::lseek(file_.fd(), off_t(offset_), SEEK_SET) < 0)
      fail_errno("write {} anew", name_);
  }

  // The size is known only now.
  void end() {
    const auto size = member_bytes_;
    static constexpr std::array<char, codec::kTarBlock> kZeros{};
    add(as_bytes(std::string_view(kZeros.data(), codec::padding_of(size))));
    const auto header = tar_header(name_, size);
    pwrite_all(file_.fd(), header_offset_, as_bytes(std::string_view(header.data(), header.size())), name_);
  }

  std::uint64_t finish() {
    const std::array<char, 2 * codec::kTarBlock> zeros{};
    write(zeros);
    file_.commit();
    return offset_;
  }

 private:
  template <std::size_t size>
  void write(const std::array<char, size>& bytes) {
    add(as_bytes(std::string_view(bytes.data(), bytes.size())));
  }

  AtomicFile file_;
  std::string name_;
  std::uint64_t offset_ = 0;
  std::uint64_t header_offset_ = 0;
  std::uint64_t member_bytes_ = 0;
};

void add_member(TarFile& tar, const std::string& name, ByteView content) {
  tar.begin(name);
  tar.add(content);
  tar.end();
}

void add_layer(TarFile& tar, const std::string& name, oci::Repository& repository, const oci::Descriptor& layer,
               const Digest& diff_id, const Work& work) {
  const auto what = "layer " + layer.digest.to_string();
  tar.begin(name);
  const auto unpack = [&] {
    Sha256 hash;
    codec::BlobDecoder decoder(what, index::kMaxStreamBytes, [&](ByteView stream) {
      hash.update(stream);
      tar.add(stream);
    });
    // Whether what cannot be decoded is the layer at all is known at the blob's end: its digest has the first word.
    std::exception_ptr undecodable;
    repository.read_blob(layer, {.offset = 0, .length = layer.size}, [&](ByteView bytes) {
      work.add(bytes.size());
      if (undecodable) return;
      try {
        decoder.feed(bytes);
      } catch (const CorruptData&) {
        undecodable = std::current_exception();
      }
    });
    if (undecodable) std::rethrow_exception(undecodable);
    decoder.finish();
    return hash.finish();
  };
  for (oci::SourceTurns sources(repository, layer);;) {
    try {
      if (const auto found = unpack(); found != diff_id)
        fail<CorruptData>("{}: unpacks to {}, the image's config says {}", what, found.to_string(),
                          diff_id.to_string());
      return tar.end();
    } catch (const CorruptData& error) {
      if (!sources.next(error)) throw;
      work.progress.expect(layer.size);
      tar.begin_again();
    }
  }
}

}  // namespace

ExportReport export_docker_archive(const oci::Image& image, const std::filesystem::path& file, const std::string& name,
                                   const Work& work) {
  for (const auto& layer : image.manifest.layers) work.progress.expect(layer.size);
  remove_abandoned_files(file);  // each as large as an image
  TarFile tar(file);
  const auto config_name = image.manifest.config.digest.hex() + ".json";
  auto layer_names = nlohmann::json::array();
  std::set<Digest> written;
  for (std::size_t i = 0; i < image.manifest.layers.size(); ++i) {
    const auto& diff_id = image.config.diff_ids[i];
    layer_names.push_back(diff_id.hex() + ".tar");
    // A layer that the image repeats is one file with two mentions.
    if (written.insert(diff_id).second)
      add_layer(tar, layer_names.back(), *image.repository, image.manifest.layers[i], diff_id, work);
    else
      work.progress.add(image.manifest.layers[i].size);
  }
  add_member(tar, config_name, image.config_json);
  auto entry = nlohmann::json{
      {"Config", config_name}, {"RepoTags", nlohmann::json::array()}, {"Layers", std::move(layer_names)}};
  if (!name.empty()) entry["RepoTags"].push_back(name);
  add_member(tar, "manifest.json", as_bytes(nlohmann::json::array({std::move(entry)}).dump()));
  return {.image = image.digest(), .copied_bytes = tar.finish(), .reused_bytes = 0};
}

}  // namespace varve::indexer
