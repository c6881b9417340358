#include <memory>

#include <nlohmann/json.hpp>

#include "analyzer/packages/inventory.h"
#include "cli/base/open_image.h"
#include "cli/command.h"
#include "cli/image/package_report.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/text/safe_text.h"

namespace varve::cli {
namespace {

struct PackagesArguments {
  std::string what;
  PackageView view;
  std::string why;
  bool check = false;
};

void run_packages(Context& context, const PackagesArguments& arguments) {
  const Stopwatch watch;
  Progress progress;
  packages::Inventory inventory;
  PackageCost cost;
  {
    const ProgressLine line(progress, "reading layers", context.global.quiet);
    const auto files = open_files(context, arguments.what, progress);
    inventory = packages::read_inventory(*files);
    cost = {.seconds = watch.seconds(), .indexed = files->facts().indexed, .fetched = files->fetched()};
  }
  const auto findings = arguments.check ? packages::check_inventory(inventory) : std::vector<packages::Finding>();

  if (context.global.json) {
    auto document = packages_json(inventory, cost);
    if (arguments.check) document["findings"] = findings_json(findings);
    if (!arguments.why.empty()) document["why"] = why_json(inventory, arguments.why);
    context.print_json(document);
  } else if (!arguments.why.empty()) {
    print_why(inventory, arguments.why, context.out);
  } else if (arguments.check) {
    print_findings(findings, context.out);
  } else {
    print_packages(inventory, cost, arguments.view, context.out);
  }
  for (const auto& problem : inventory.problems) log::warn("{}", printable(problem));
  if (!findings.empty()) context.exit_status = 3;
}

}  // namespace

void add_packages_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<PackagesArguments>();
  auto* command = app.add_subcommand(
      "packages", "Lists what pip, conda and dpkg installed in an image, with sizes and layers; runs nothing of it");
  command
      ->add_option("IMAGE|DIR", arguments->what,
                   "An image, fast if it is indexed; or a plain folder: an unpacked image, a virtual environment")
      ->required();
  command->add_option("--sort", arguments->view.sort, "By what the table is sorted: size or name")
      ->check(CLI::IsMember({"size", "name"}))
      ->capture_default_str();
  command->add_flag("--waste", arguments->view.waste, "Bytes that lower layers carry for nothing, and why");
  command->add_flag("--unowned", arguments->view.unowned, "Files that no package owns, by folder");
  command->add_flag("--layers", arguments->view.layers, "What each layer holds");
  command->add_flag("--vendored", arguments->view.vendored, "Copies of distributions inside others, too");
  command
      ->add_option("--why", arguments->why,
                   "Why a distribution is there: who asked for it, who needs it; or whose an import name is")
      ->type_name("NAME");
  command->add_flag(
      "--check", arguments->check,
      "Look for missing and incompatible needs and broken records, as `pip check` does and further; exit 3 if there "
      "are");
  command->footer(
      "Examples:\n  varve packages oci:image:latest --sort size\n"
      "  varve packages oci:image:latest --waste --layers\n  varve packages --check --json /opt/venv\n"
      "  varve packages oci:image:latest --why numpy");
  command->callback([&context, arguments] { run_packages(context, *arguments); });
}

}  // namespace varve::cli
