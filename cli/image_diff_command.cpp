#include <filesystem>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "analyzer/compare/compare.h"
#include "analyzer/notebooks/scan.h"
#include "analyzer/packages/image_source.h"
#include "cli/diff_report.h"
#include "cli/image_command.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/index/merge/flat_tree.h"
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

// One of the two, opened with all that the comparison reads.
class OpenedSide {
 public:
  OpenedSide(const Context& context, index::LocalIndex& local, const std::string& reference, Progress& progress)
      : image_(context.open_image(reference)), index_(load(context, local, reference, progress)) {
    tree_ = index::flatten(index::read_layer_entries(local, index_, image_));
    files_ = packages::open_indexed_image(image_, index_, local, index::windows_repository(local, index_, image_));
    inventory_ = packages::read_inventory(*files_);
    for (const auto& problem : inventory_.problems) log::warn("{}: {}", reference, problem);
  }

  const oci::Image& image() const { return image_; }
  compare::Side side() const { return {.image = image_, .tree = tree_, .inventory = inventory_}; }

 private:
  index::LoadedIndex load(const Context& context, index::LocalIndex& local, const std::string& reference,
                          Progress& progress) const {
    try {
      return index::load_index(local, image_);
    } catch (const NotFound&) {
      log::info(
          "{}: not indexed: reading all of its layers, and keeping their index on this machine; `varve index {}` does so for everybody",
          reference, reference);
    }
    const ProgressLine line(progress, "reading layers", context.global.quiet);
    indexer::index_image(image_, local.repository(), local, {}, {progress, context.cancel});
    return index::load_index(local, image_);
  }

  oci::Image image_;
  index::LoadedIndex index_;
  index::FlatTree tree_;
  std::unique_ptr<packages::ImageSource> files_;
  packages::Inventory inventory_;
};

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
  Progress progress;
  auto local = context.local_index();
  const OpenedSide before(context, local, arguments.before, progress);
  const OpenedSide after(context, local, arguments.after, progress);
  const auto comparison = compare::compare_images(before.side(), after.side());
  DiffInput diff{.before = arguments.before,
                 .after = arguments.after,
                 .image_before = before.image(),
                 .image_after = after.image(),
                 .comparison = comparison,
                 .notebook = arguments.notebook,
                 .for_notebook = {}};
  if (!arguments.notebook.empty()) {
    const auto scan = scan_notebook(arguments.notebook, before.side(), after.side(), context.cancel);
    diff.for_notebook = compare::compare_for_notebook(scan, before.side(), after.side(), comparison);
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
          "Only what this notebook (or script, or folder of them) would notice: packages that it imports, what those need, imports that break")
      ->type_name("FILE");
  command->add_option("--files", arguments->files, "List so many changed files (200 with -v, 1000 with --json)")
      ->type_name("N");
  command->add_flag("--exit-code", arguments->exit_code, "Exit 3 if anything differs but times of files");
  command->footer(
      "Examples:\n  varve image diff oci:image:2026-10 oci:image:2026-11\n  varve image diff --notebook work.ipynb registry.example/team/notebook:2026-10 registry.example/team/notebook:2026-11\n"
      "  varve image diff -v --files 50 oci:image:a oci:image:b\n\n"
      "An image without an index is read once from end to end; its index stays on this machine. Nothing of the images is run.");
  command->callback([&context, arguments] { run_diff(context, *arguments); });
}

}  // namespace varve::cli
