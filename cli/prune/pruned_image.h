#pragma once
// What carrying out a plan needs of other rooms: images written and indexed, pins watched.
#include <memory>
#include <vector>

#include "analyzer/prune/apply/apply_plan.h"
#include "cli/command.h"
#include "indexer/pin_watch.h"
#include "indexer/repack_image.h"

namespace varve::cli {

// The indexer's repack_image() and index_image(), with a line of progress each. Context must outlive it.
class PrunedImageWriter final : public prune::ImageWriter {
 public:
  explicit PrunedImageWriter(const Context& context) : context_(context) {}

  // Throws UsageError for a level that the format does not have, and what repack_image() throws.
  prune::WrittenImage write(const prune::ImageView& before, index::Placement placement,
                            const prune::WriteSettings& settings, oci::Repository& destination,
                            const std::filesystem::path& work_dir, bool indexed) override;
  // Start-up packs of the image that was written from come with it, as far as they are still right.
  void index(const oci::Image& image) override;
  prune::TimesRule times_rule(const oci::Image& image) override;
  // Of the last image that was written to be indexed.
  const indexer::RepackReport& report() const { return report_; }

 private:
  const Context& context_;
  const index::OpenedImage* before_ = nullptr;  // of the image that was written last
  indexer::RepackReport report_;
};

// The judge of the gate "pins": what is pinned there now, when this is called, must be then and be whole.
prune::GateJudge watch_pins(const Context& context, const std::vector<std::shared_ptr<oci::Repository>>& repositories);

}  // namespace varve::cli
