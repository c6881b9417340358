#include "cli/prune/pruned_image.h"

#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "cli/image/writer_options.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "indexer/index_image.h"
#include "indexer/packs/carry_packs.h"

namespace varve::cli {

prune::WrittenImage PrunedImageWriter::write(const prune::ImageView& before, index::Placement placement,
                                             const prune::WriteSettings& settings, oci::Repository& destination,
                                             const std::filesystem::path& work_dir, bool indexed) {
  indexer::RepackOptions options;
  options.writer = writer_options(settings.format, settings.level, settings.jobs);
  options.work_dir = work_dir;
  options.index_layers = indexed;
  options.times = settings.times;
  std::optional<indexer::LayoutRecord> previous_layout;
  if (settings.previous) previous_layout = indexer::find_layout_record(*settings.previous);
  const auto& opened = before.opened();
  std::filesystem::create_directories(work_dir);
  Progress progress;
  const ProgressLine line(progress, indexed ? "write" : "rebuild", context_.global.quiet);
  auto report = indexer::repack_image({.image = opened.image(),
                                       .index = opened.index(),
                                       .local = opened.local(),
                                       .tree = before.tree(),
                                       .placement = std::move(placement),
                                       .previous = settings.previous.get(),
                                       .previous_layout = previous_layout ? &*previous_layout : nullptr},
                                      destination, "", options, {progress, context_.cancel});
  prune::WrittenImage written{
      .image = report.image, .layers = report.layers.size(), .new_layers = 0, .new_bytes = report.new_bytes};
  for (const auto& layer : report.layers) written.new_layers += !layer.kept_as_is && !layer.reused;
  if (indexed) {
    report_ = std::move(report);
    before_ = &opened;
  }
  return written;
}

void PrunedImageWriter::index(const oci::Image& image) {
  auto local = context_.local_index();
  Progress progress;
  const ProgressLine line(progress, "index", context_.global.quiet);
  indexer::index_image(image, *image.repository, local, {}, {progress, context_.cancel});
  if (before_ != nullptr)
    indexer::publish_carried(*before_, index::OpenedImage(std::move(local), image), context_.global.root / "tmp", 0,
                             {progress, context_.cancel});
}

prune::TimesRule PrunedImageWriter::times_rule(const oci::Image& image) {
  prune::TimesRule rule;
  try {
    const auto record = indexer::find_layout_record(image);
    if (!record) return rule;
    for (std::uint32_t i = 0; i < record->layers.size(); ++i)
      if (record->layers[i].times_of_previous) rule.of_previous.insert(i);
    rule.latest = record->latest_time;
    rule.latest_created = record->latest_created;
  } catch (const CorruptData& error) {
    log::warn("{}: all times have to be exact", error.what());
  }
  return rule;
}

prune::GateJudge watch_pins(const Context& context, const std::vector<std::shared_ptr<oci::Repository>>& repositories) {
  return [&context, watch = indexer::PinWatch(repositories)](prune::GateResult& result) {
    Progress progress;
    auto found = watch.check({progress, context.cancel});
    result.detail = fmt::format("{} pinned images in {}{}", found.images, fmt::join(found.places, " and "),
                                found.problems.empty() ? " are whole and what they were" : "");
    result.findings = std::move(found.problems);
  };
}

}  // namespace varve::cli
