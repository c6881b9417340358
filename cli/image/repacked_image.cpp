#include "cli/image/repacked_image.h"

#include <nlohmann/json.hpp>

#include <charconv>
#include <ostream>
#include <utility>

#include "analyzer/prune/image_view.h"
#include "analyzer/prune/placement.h"
#include "cli/base/destination.h"
#include "cli/base/open_image.h"
#include "cli/base/text.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"

namespace varve::cli {
namespace {

constexpr std::size_t kMaxShownComponents = 3;

std::vector<std::uint32_t> parse_layers(std::string_view text) {
  std::vector<std::uint32_t> layers;
  if (text == "none") return layers;
  while (true) {
    const auto word = text.substr(0, text.find(','));
    std::uint32_t layer = 0;
    if (const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), layer);
        error != std::errc() || end != word.data() + word.size())
      fail<UsageError>("--take-over '{}': layers are numbers counted from 0, as in 0,1,4; or none", printable(word));
    layers.push_back(layer);
    if (word.size() == text.size()) return layers;
    text.remove_prefix(word.size() + 1);
  }
}

index::Placement place_files(const prune::ImageView& image) {
  if (image.tree().has_elf_facts) {
    const auto selection = image.cuda_selection();
    return prune::make_placement(image.tree(), image.inventory(), nullptr, &selection);
  }
  log::warn(
      "{0}: indexed by a Varve that looked at no libraries, so CUDA is not told apart; `varve index --force {0}` "
      "mends that",
      image.reference());
  return prune::make_placement(image.tree(), image.inventory(), nullptr, nullptr);
}

nlohmann::json to_json(const indexer::RepackReport& report) {
  return {{"image", report.image.to_string()},   {"old_image", report.old_image.to_string()},
          {"layers", layers_json(report)},       {"reused_bytes", report.reused_bytes},
          {"copied_bytes", report.copied_bytes}, {"new_bytes", report.new_bytes}};
}

std::string contents_of(const indexer::RepackedLayer& layer) {
  if (layer.kept_as_is) return "as it was";
  if (layer.components.empty()) return "shared directories";
  std::string text;
  for (std::size_t i = 0; i < std::min(layer.components.size(), kMaxShownComponents); ++i)
    text += (i == 0 ? "" : " ") + printable(layer.components[i]);
  return layer.components.size() > kMaxShownComponents
             ? text + fmt::format(" and {} more", layer.components.size() - kMaxShownComponents)
             : text;
}

void print_report(const indexer::RepackReport& report, std::ostream& out) {
  std::vector<std::vector<std::string>> rows{{"LAYER", "TIER", "SIZE", "TOOK", "HOLDS"}};
  for (const auto& layer : report.layers)
    rows.push_back(
        {layer.digest.to_string().substr(0, 19), std::string(index::tier_name(layer.tier)), human_bytes(layer.bytes),
         layer.kept_as_is || layer.reused ? "reused" : fmt::format("{:.1f} s", layer.seconds), contents_of(layer)});
  print_table(out, rows);
  out << fmt::format("{}\n{}\n", report.image.to_string(), repacked_text(report));
}

}  // namespace

void warn_without_table(const Digest& layer, const std::string& why) {
  if (why.empty()) return;
  log::warn("layer {}: it holds {}, so podman cannot pull it in parts; all else is as with the others",
            layer.to_string(), why);
}

void show_written(const Context& context, const Destination& destination, const Digest& image, nlohmann::json document,
                  const std::function<void(std::ostream& out)>& print) {
  if (context.global.json) {
    document["replaced"] = replaced_json(destination, image);
    return context.print_json(document);
  }
  print(context.out);
  context.out << moved_text(destination, image);
}

std::string written_text(std::uint64_t new_bytes, std::uint64_t reused_bytes, std::uint64_t copied_bytes) {
  return fmt::format("{} written, {} reused{}", human_bytes(new_bytes), human_bytes(reused_bytes),
                     copied_bytes == 0 ? "" : fmt::format(", {} of it copied there", human_bytes(copied_bytes)));
}

std::string repacked_text(const indexer::RepackReport& report) {
  auto text = written_text(report.new_bytes, report.reused_bytes, report.copied_bytes);
  std::uint64_t files = 0;
  for (const auto& layer : report.layers) files += layer.files_with_previous_times;
  if (files != 0)
    text += fmt::format("\ntimes of {} files are the previous version's (--times exact: their own)", files);
  return text;
}

nlohmann::json layers_json(const indexer::RepackReport& report) {
  auto layers = nlohmann::json::array();
  for (const auto& layer : report.layers)
    layers.push_back({{"digest", layer.digest.to_string()},
                      {"diff_id", layer.diff_id.to_string()},
                      {"compressed_bytes", layer.bytes},
                      {"stream_bytes", layer.stream_bytes},
                      {"heat", index::tier_name(layer.tier)},
                      {"taken_over", layer.kept_as_is},
                      {"reused", layer.reused},
                      {"files_with_previous_times", layer.files_with_previous_times},
                      {"components", layer.components},
                      {"seconds", layer.seconds}});
  return layers;
}

void repack_indexed_image(const Context& context, RepackArguments& arguments) {
  const auto reference = parse_destination(arguments.destination);
  if (!arguments.keep_as_is.empty()) arguments.options.keep_as_is = parse_layers(arguments.keep_as_is);
  index_here_if_others_did(context, arguments.image);
  const auto opened = open_indexed(context, arguments.image);
  const prune::ImageView image(arguments.image, opened);
  std::optional<oci::Image> previous;
  std::optional<indexer::LayoutRecord> previous_layout;
  if (!arguments.previous.empty()) {
    previous = context.open_image(arguments.previous);
    previous_layout = indexer::find_layout_record(*previous);
    if (!previous_layout)
      fail<NotFound>(
          "{}: nothing says how it was packed; --previous takes an image that `varve image optimize --repack` or "
          "`varve prune apply` wrote",
          arguments.previous);
  }
  const auto destination = open_destination(context, arguments.image, reference);
  refuse_own_source(arguments.image, opened.digest(), destination, arguments.replace);
  auto placement = place_files(image);
  arguments.options.work_dir = context.global.root / "tmp/relayer";
  Progress progress;
  indexer::RepackReport report;
  {
    const ProgressLine line(progress, "optimize", context.global.quiet);
    report = indexer::repack_image({.image = opened.image(),
                                    .index = opened.index(),
                                    .local = opened.local(),
                                    .tree = image.tree(),
                                    .placement = std::move(placement),
                                    .previous = previous ? &*previous : nullptr,
                                    .previous_layout = previous_layout ? &*previous_layout : nullptr},
                                   *destination.repository, destination.tag(), arguments.options,
                                   {progress, context.cancel});
  }
  for (const auto& layer : report.layers) warn_without_table(layer.digest, layer.without_table);
  show_written(context, destination, report.image, to_json(report),
               [&](std::ostream& out) { print_report(report, out); });
}

}  // namespace varve::cli
