#include <filesystem>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "analyzer/compare/compare.h"
#include "analyzer/notebooks/scan.h"
#include "cli/base/open_image.h"
#include "cli/image/diff_report.h"
#include "cli/image/image_command.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "indexer/index_image.h"

namespace varve::cli {
namespace {

constexpr std::size_t kFilesInJson = 1000;
constexpr std::size_t kFilesIfVerbose = 200;

struct DiffArguments {
  std::string before, after;
  std::string notebook;
  std::optional<std::size_t> files;
  bool exit_code = false;
};

index::OpenedImage open_side(const Context& context, const std::string& reference) {
  try {
    return open_indexed(context, reference);
  } catch (const NotFound&) {
    log::info(
        "{}: not indexed: reading all of its layers, and keeping their index on this machine; `varve index {}` does "
        "so for everybody",
        reference, reference);
  }
  const auto image = context.open_image(reference);
  auto local = context.local_index();
  {
    Progress progress;
    const ProgressLine line(progress, "reading layers", context.global.quiet);
    indexer::index_image(image, local.repository(), local, {}, {progress, context.cancel});
  }
  return {local, image};
}

packages::Inventory inventory_of(const index::OpenedImage& image, const std::string& reference) {
  auto inventory = packages::read_inventory(image);
  for (const auto& problem : inventory.problems) log::warn("{}: {}", reference, problem);
  return inventory;
}

notebooks::ScanResult scan_notebook(const std::string& path, const compare::Side& before, const compare::Side& after,
                                    const CancelFlag& cancel) {
  if (!std::filesystem::exists(path)) fail<NotFound>("{}: no such notebook, script or folder", path);
  notebooks::ScanOptions options;
  options.is_distribution = [&](std::string_view name) {
    return !before.inventory.modules.owners(name).empty() || !after.inventory.modules.owners(name).empty();
  };
  return notebooks::scan({path}, options, cancel);
}

void run_diff(Context& context, const DiffArguments& arguments) {
  const auto image_before = open_side(context, arguments.before);
  const auto image_after = open_side(context, arguments.after);
  const auto inventory_before = inventory_of(image_before, arguments.before);
  const auto inventory_after = inventory_of(image_after, arguments.after);
  const compare::Side before{image_before.image(), image_before.tree(), inventory_before};
  const compare::Side after{image_after.image(), image_after.tree(), inventory_after};
  const auto comparison = compare::compare_images(before, after);
  DiffInput diff{.before = arguments.before,
                 .after = arguments.after,
                 .image_before = before.image,
                 .image_after = after.image,
                 .comparison = comparison,
                 .notebook = arguments.notebook,
                 .for_notebook = {}};
  if (!arguments.notebook.empty()) {
    const auto scan = scan_notebook(arguments.notebook, before, after, context.cancel);
    diff.for_notebook = compare::compare_for_notebook(scan, before, after, comparison);
  }
  DiffView view;
  if (context.global.verbose > 0) view.packages = comparison.packages.changed.size();
  view.files = arguments.files.value_or(context.global.json          ? kFilesInJson
                                        : context.global.verbose > 0 ? kFilesIfVerbose
                                                                     : 0);
  if (context.global.json) {
    context.print_json(diff_json(diff, view));
  } else {
    print_diff(diff, view, context.out);
  }
  if (arguments.exit_code && !comparison.identical()) context.exit_status = 3;
}

}  // namespace

void add_image_diff_command(CLI::App& image, Context& context) {
  const auto arguments = std::make_shared<DiffArguments>();
  auto* command = image.add_subcommand(
      "diff", "Shows what changed from one image to another: packages, files, layers, configuration");
  command->add_option("A", arguments->before, "The earlier image: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG]")
      ->required();
  command->add_option("B", arguments->after, "The later one; may be in another place")->required();
  command
      ->add_option(
          "--notebook", arguments->notebook,
          "Only what this notebook (or script, or folder of them) would notice: packages that it imports, what "
          "those need, imports that break")
      ->type_name("FILE");
  command->add_option("--files", arguments->files, "List so many changed files (200 with -v, 1000 with --json)")
      ->type_name("N");
  command->add_flag("--exit-code", arguments->exit_code, "Exit 3 if anything differs but times of files");
  command->footer(
      "Examples:\n  varve image diff oci:image:2026-10 oci:image:2026-11\n"
      "  varve image diff --notebook work.ipynb registry.example/team/notebook:2026-10 "
      "registry.example/team/notebook:2026-11\n"
      "  varve image diff -v --files 50 oci:image:a oci:image:b\n\n"
      "An image without an index is read once from end to end; its index stays on this machine. Nothing of the "
      "images is run.");
  command->callback([&context, arguments] { run_diff(context, *arguments); });
}

}  // namespace varve::cli
