#include "indexer/optimize_image.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/codec/gzip_walker.h"
#include "core/oci/copy_blob.h"
#include "indexer/internal/decoded_layer.h"
#include "indexer/internal/rewritten_documents.h"

namespace varve::indexer {
namespace {

constexpr std::string_view kTocAnnotation = "io.github.containers.zstd-chunked.manifest-checksum";

constexpr std::uint64_t kMaxMemberBytes = 4u << 20;  // stream side: what has to be decoded to come to any byte
constexpr std::uint64_t kMaxProbedBytes = kMaxMemberBytes + (64u << 10);  // compressed: such a member fits in

class MemberFinder final : public codec::GzipListener {
 public:
  void on_stream_bytes(ByteView bytes) override { stream_bytes_ += bytes.size(); }
  void on_boundary(const codec::GzipBoundary& boundary, ByteView) override {
    second_member_ = second_member_ || (boundary.member_start && boundary.stream_offset != 0);
  }
  bool second_member_ = false;
  std::uint64_t stream_bytes_ = 0;
};

// Whether a gzip layer comes in small members, as we and eStargz's tools write them: told by its first one.
bool is_in_members(oci::Repository& repository, const oci::Descriptor& layer) {
  Bytes begin;
  repository.read_blob(layer, {.offset = 0, .length = std::min(layer.size, kMaxProbedBytes)},
                       [&](ByteView bytes) { append(begin, bytes); });
  MemberFinder found;
  try {
    codec::GzipWalker walker("layer " + layer.digest.to_string(), found);
    constexpr std::size_t kPieceBytes = 64u << 10;
    for (auto rest = ByteView(begin); !rest.empty() && !found.second_member_;) {
      const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
      walker.feed(piece);
      rest = rest.subspan(piece.size());
      if (!found.second_member_ && found.stream_bytes_ > kMaxMemberBytes) return false;
    }
  } catch (const CorruptData&) {
    return false;  // who writes it anew says what is wrong with it
  }
  return found.second_member_ || begin.size() == layer.size;
}

class ImageOptimizer {
 public:
  ImageOptimizer(const oci::Image& image, oci::Repository& destination, const OptimizeOptions& options,
                 const Work& work)
      : image_(image), destination_(destination), options_(options), work_(work) {}

  OptimizeReport run(std::string_view tag) {
    report_.old_image = image_.digest();
    for (const auto& layer : image_.manifest.layers) work_.progress.expect(layer.size);
    for (std::size_t i = 0; i < image_.manifest.layers.size(); ++i) add_layer(i);
    copy_blob(image_.manifest.config);
    work_.cancel.throw_if_cancelled();
    const auto text = rewritten_manifest(image_, descriptors_, image_.manifest.config);
    report_.image = destination_.put_manifest(as_bytes(text), oci::kOciManifestType, tag).digest;
    return std::move(report_);
  }

 private:
  void add_layer(std::size_t number) {
    const auto& layer = image_.manifest.layers[number];
    if (const auto done = done_.find(layer.digest); done != done_.end()) {  // the image repeats it
      work_.progress.add(layer.size);
      report_.layers.push_back(report_.layers[done->second]);
      descriptors_.push_back(descriptors_[done->second]);
      return;
    }
    done_.emplace(layer.digest, number);
    if (number < options_.keep_layers || (!options_.force && has_the_form(layer))) {
      keep_layer(layer, image_.config.diff_ids[number]);
    } else {
      write_layer(layer, image_.config.diff_ids[number]);
    }
  }

  // What old runtimes need and what can be entered are two things: plain gzip is only the first.
  bool has_the_form(const oci::Descriptor& layer) const {
    if (options_.writer.format == WrittenFormat::kZstdChunked)
      return layer.annotations.contains(std::string(kTocAnnotation));
    const auto type = oci::parse_layer_media_type(layer.media_type);
    return type && type->compression == oci::LayerCompression::kGzip && is_in_members(*image_.repository, layer);
  }

  void keep_layer(const oci::Descriptor& layer, const Digest& diff_id) {
    const Stopwatch watch;
    copy_blob(layer);
    auto descriptor = layer;
    descriptor.media_type = oci_layer_type(layer);
    descriptors_.push_back(std::move(descriptor));
    report_.layers.push_back({.diff_id = diff_id,
                              .old_digest = layer.digest,
                              .digest = layer.digest,
                              .old_bytes = layer.size,
                              .bytes = layer.size,
                              .stream_bytes = 0,
                              .kept = true,
                              .without_table = {},
                              .seconds = watch.seconds()});
  }

  void copy_blob(const oci::Descriptor& blob) {
    work_.cancel.throw_if_cancelled();
    const auto stop = [&](std::uint64_t) { work_.cancel.throw_if_cancelled(); };
    if (oci::copy_blob(*image_.repository, destination_, blob, stop)) report_.copied_bytes += blob.size;
    work_.progress.add(blob.size);
    report_.reused_bytes += blob.size;
  }

  void write_layer(const oci::Descriptor& layer, const Digest& diff_id) {
    const Stopwatch watch;
    const auto what = "layer " + layer.digest.to_string();
    const auto draft = destination_.draft_blob(options_.work_dir);
    LayerWriter writer(what, options_.writer, [&](ByteView bytes) { draft->write(bytes); });
    DecodedLayer stream(*image_.repository, layer, what, work_);
    for (auto piece = stream.next(); !piece.empty(); piece = stream.next()) {
      work_.cancel.throw_if_cancelled();
      writer.feed(piece);
    }
    const auto written = writer.finish();
    if (written.diff_id != diff_id)
      fail<CorruptData>("{}: unpacks to {}, the image's config says {}", what, written.diff_id.to_string(),
                        diff_id.to_string());
    oci::Descriptor descriptor;
    descriptor.media_type = written.media_type;
    descriptor.digest = written.digest;
    descriptor.size = written.compressed_bytes;
    descriptor.annotations = written.annotations;
    (draft->commit(descriptor) ? report_.new_bytes : report_.reused_bytes) += descriptor.size;
    report_.layers.push_back({.diff_id = diff_id,
                              .old_digest = layer.digest,
                              .digest = descriptor.digest,
                              .old_bytes = layer.size,
                              .bytes = descriptor.size,
                              .stream_bytes = written.stream_bytes,
                              .kept = false,
                              .without_table = written.without_table,
                              .seconds = watch.seconds()});
    descriptors_.push_back(std::move(descriptor));
  }

  const oci::Image& image_;
  oci::Repository& destination_;
  const OptimizeOptions& options_;
  const Work work_;
  std::map<Digest, std::size_t> done_;        // layers of the image -> their first number
  std::vector<oci::Descriptor> descriptors_;  // of the new manifest
  OptimizeReport report_;
};

}  // namespace

OptimizeReport optimize_image(const oci::Image& image, oci::Repository& destination, std::string_view tag,
                              const OptimizeOptions& options, const Work& work) {
  return ImageOptimizer(image, destination, options, work).run(tag);
}

}  // namespace varve::indexer
