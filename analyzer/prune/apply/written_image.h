#pragma once
// Writing the image of a plan: what apply does once, and the gate "rebuild" a second time.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "analyzer/prune/apply/gates.h"
#include "analyzer/prune/apply/proof.h"
#include "analyzer/prune/image_view.h"
#include "core/base/work.h"
#include "core/index/merge/placement.h"
#include "core/index/merge/repack_times.h"
#include "core/oci/image.h"

namespace varve::prune {

// How it is written: with the old image and the plan, all that decides about its bytes.
struct WriteSettings {
  std::string format = "zstd:chunked";             // or "gzip"
  int level = 3;                                   // of that format
  unsigned jobs = 0;                               // threads, 0 = one per core; decides nothing about the bytes
  std::shared_ptr<oci::Image> previous = nullptr;  // the image's last version as Varve wrote it; null: none
  index::RepackTimes times = {};
};

// For the proof, and back: settings_of() looks for the previous image where `image` is, unless `previous` is that one.
// Throws CouldNotRun for what this Varve would write otherwise, and if the previous image is in neither place.
std::map<std::string, std::string> describe(const WriteSettings& settings);
WriteSettings settings_of(const Proof& proof, const oci::Image& image, std::shared_ptr<oci::Image> previous);

struct WrittenImage {
  Digest image;
  std::uint64_t layers = 0;
  std::uint64_t new_layers = 0;  // the others were there: kept as they are, or reused
  std::uint64_t new_bytes = 0;   // compressed
};

// Writes images and their indexes: the indexer's part, which this room does not include.
class ImageWriter {
 public:
  virtual ~ImageWriter() = default;
  // Writes the image anew with this placement, under no tag. The bytes depend on image, placement, format, level,
  // previous image and times alone. `indexed`: what the writing learns of each layer is kept beside the old image's
  // index, for index(). `work_dir` remembers finished layers for a run that goes on. Throws Cancelled.
  virtual WrittenImage write(const ImageView& before, index::Placement placement, const WriteSettings& settings,
                             oci::Repository& destination, const std::filesystem::path& work_dir, bool indexed) = 0;
  // Publishes the index of an image that was written beside it. Layers whose index is here are not read.
  virtual void index(const oci::Image& image) = 0;
  // Which times the image may have that the one it was made of has not, as its layout record says; exact ones if there
  // is none that can be read.
  virtual TimesRule times_rule(const oci::Image& image) = 0;
};

// The placement of the plan on its image. Throws Unsupported for a plan that archives CUDA, and for an index without
// ELF facts.
index::Placement place_by_plan(const ImageView& before, const Plan& plan, const TreeChange& change);

// The gate "rebuild": writes it again, with another number of jobs and to nowhere, and expects the digest. `scratch`
// gets a folder of its own while it lasts.
void judge_rebuild(ImageWriter& writer, const ImageView& before, const Digest& expected, index::Placement placement,
                   const WriteSettings& settings, const std::filesystem::path& scratch, GateResult& result);

}  // namespace varve::prune
