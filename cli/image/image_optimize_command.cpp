#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/report/text.h"
#include "cli/base/destination.h"
#include "cli/base/text.h"
#include "cli/command.h"
#include "cli/image/image_command.h"
#include "cli/image/repacked_image.h"
#include "cli/image/writer_options.h"
#include "cli/image/written_times.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/text/units.h"
#include "core/codec/frame_encoder.h"
#include "indexer/optimize_image.h"

namespace varve::cli {
namespace {

struct OptimizeArguments {
  std::string image;
  std::string destination;
  std::string format = "zstd:chunked";
  int level = 0;  // 0 = the format's default
  indexer::OptimizeOptions options;
  bool repack = false;
  RepackArguments repacking;
  TimesArguments times;
};

nlohmann::json to_json(const indexer::OptimizeReport& report) {
  auto layers = nlohmann::json::array();
  for (const auto& layer : report.layers)
    layers.push_back({{"digest", layer.digest.to_string()},
                      {"old_digest", layer.old_digest.to_string()},
                      {"diff_id", layer.diff_id.to_string()},
                      {"compressed_bytes", layer.bytes},
                      {"old_compressed_bytes", layer.old_bytes},
                      {"stream_bytes", layer.stream_bytes},
                      {"kept", layer.kept},
                      {"table_of_contents", !layer.kept && layer.without_table.empty()},
                      {"seconds", layer.seconds}});
  return {{"image", report.image.to_string()},   {"old_image", report.old_image.to_string()},
          {"layers", std::move(layers)},         {"reused_bytes", report.reused_bytes},
          {"copied_bytes", report.copied_bytes}, {"new_bytes", report.new_bytes}};
}

void print_report(const indexer::OptimizeReport& report, std::ostream& out) {
  std::vector<std::vector<std::string>> rows{{"LAYER", "BEFORE", "AFTER", "TOOK"}};
  for (const auto& layer : report.layers)
    rows.push_back({layer.digest.to_string().substr(0, 19), human_bytes(layer.old_bytes),
                    layer.kept ? "as it was" : human_bytes(layer.bytes), fmt::format("{:.1f} s", layer.seconds)});
  print_table(out, rows);
  out << report.image.to_string() << '\n'
      << written_text(report.new_bytes, report.reused_bytes, report.copied_bytes) << '\n';
}

void run_optimize(const Context& context, OptimizeArguments& arguments) {
  arguments.options.writer = writer_options(arguments.format, arguments.level, arguments.options.writer.jobs);
  if (arguments.repack) {
    arguments.repacking.image = arguments.image;
    arguments.repacking.destination = arguments.destination;
    arguments.repacking.options.writer = arguments.options.writer;
    arguments.repacking.options.times = repack_times(arguments.times);
    return repack_indexed_image(context, arguments.repacking);
  }
  const auto reference = parse_destination(arguments.destination);
  const auto image = context.open_image(arguments.image);
  if (const auto layers = image.manifest.layers.size(); arguments.options.keep_layers > layers)
    fail<UsageError>("--keep-layers {}: {} has {}", arguments.options.keep_layers, arguments.image,
                     report::count_text(layers, "layer", "layers"));
  const auto destination = open_destination(context, arguments.image, reference);
  refuse_own_source(arguments.image, image.digest(), destination, arguments.repacking.replace);
  arguments.options.work_dir = context.global.root / "tmp";
  std::filesystem::create_directories(arguments.options.work_dir);
  Progress progress;
  indexer::OptimizeReport report;
  {
    const ProgressLine line(progress, "optimize", context.global.quiet);
    report = indexer::optimize_image(image, *destination.repository, destination.tag(), arguments.options,
                                     {progress, context.cancel});
  }
  for (const auto& layer : report.layers) warn_without_table(layer.digest, layer.without_table);
  show_written(context, destination, report.image, to_json(report),
               [&](std::ostream& out) { print_report(report, out); });
}

}  // namespace

void add_image_optimize_command(CLI::App& image, Context& context) {
  const auto arguments = std::make_shared<OptimizeArguments>();
  auto* command = image.add_subcommand(
      "optimize",
      "Writes an image with layers that can be entered anywhere, or better ones; what it unpacks to stays the same");
  command->add_option("IMAGE", arguments->image, "The image: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG]")->required();
  command
      ->add_option("DEST", arguments->destination,
                   "Where the new one goes: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG]")
      ->required();
  command
      ->add_option("--format", arguments->format,
                   "zstd:chunked, or gzip for runtimes that know no zstd (Docker before 23.0)")
      ->check(CLI::IsMember({"zstd:chunked", "gzip"}))
      ->capture_default_str();
  command->add_option("--level", arguments->level, "Of compression: 1-19 (3 if not said) for zstd, 1-9 (6) for gzip")
      ->type_name("N")
      ->check(CLI::Range(1, codec::kMaxZstdLevel));
  command->add_option("--jobs", arguments->options.writer.jobs, "Threads that compress; 0 means one per core")
      ->type_name("N");
  auto* keep_layers =
      command
          ->add_option("--keep-layers", arguments->options.keep_layers, "So many of the lowest layers stay as they are")
          ->type_name("N");
  auto* force = command->add_flag("--force", arguments->options.force,
                                  "Layers that have the format already are written anew too");
  auto* repack = command
                     ->add_flag("--repack,--relayer", arguments->repack,
                                "Pack other layers, by what belongs together; needs the image's index")
                     ->excludes(keep_layers)
                     ->excludes(force);
  auto& repacking = arguments->repacking;
  command
      ->add_option(
          "--previous", repacking.previous,
          "With --repack: the image's last version so written, whose layers are used again where nothing in them "
          "changed")
      ->type_name("IMAGE")
      ->needs(repack);
  command
      ->add_option(
          "--take-over", repacking.keep_as_is,
          "With --repack: layers that stay as they are, counted from 0, or none; not said: base, CUDA and system "
          "layers worth it")
      ->type_name("N,N")
      ->needs(repack);
  command->add_option("--max-layers", repacking.options.limits.max_layers, "With --repack: of the new image")
      ->type_name("N")
      ->check(CLI::Range(2, 127))
      ->needs(repack)
      ->capture_default_str();
  command
      ->add_option("--max-layer-size", repacking.options.limits.max_layer_bytes,
                   "With --repack: of a layer's tar, as in 8GB")
      ->type_name("SIZE")
      ->transform(CLI::AsSizeValue(true))
      ->needs(repack)
      ->capture_default_str();
  add_times_options(*command, arguments->times, repack);
  add_replace_option(*command, repacking.replace);
  command->footer(
      "Examples:\n"
      "  varve image optimize oci:image:latest oci:better:latest\n"
      "  varve image optimize registry.example/team/notebook:v143 registry.example/team/notebook:v143-zstd "
      "--keep-layers 2\n"
      "  varve image optimize --repack oci:image:v2 oci:better:v2 --previous oci:better:v1\n\n"
      "Without --repack every layer stays a layer: config and diff_ids stay, so the new image has the ID of the old "
      "one. With it, base and CUDA layers stay and all else is\n"
      "packed by distribution, so that the next version reuses most layers; the tree of files stays the same, entry "
      "by entry, but for times where layers of the previous version\n"
      "are used again that differ in nothing else (--times exact: never), or where --clamp-mtime sets them back. The "
      "old image is not touched. The same image gives\n"
      "the same bytes at any number of jobs. podman pulls only the parts of a zstd:chunked layer that it does not "
      "have; every runtime that reads zstd layers runs it.");
  command->callback([&context, arguments] { run_optimize(context, *arguments); });
}

}  // namespace varve::cli
