#include <memory>
#include <optional>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/open_image.h"
#include "cli/session/daemon_access.h"
#include "core/base/text/units.h"
#include "fuse/control/control_protocol.h"

namespace varve::cli {
namespace {

void run_pull(Context& context, const std::string& image, bool wait, bool cold, bool build_index) {
  if (build_index) index_here(context, image);
  const auto spec = image_spec(context, image);
  auto daemon = connect_or_start_daemon(context);
  Progress progress;
  fuse::PullResult result;
  {
    std::optional<ProgressLine> line;
    if (wait) line.emplace(progress, "pull", context.global.quiet);
    result = daemon.pull(spec, wait, cold, show_progress(progress), context.cancel);
  }
  if (context.global.json) return context.print_json(result);
  const auto cold_away = result.cold_bytes - result.cold_present_bytes;
  const auto left_out = cold || cold_away == 0
                            ? ""
                            : fmt::format("; {} are marked cold and come when they are read (`--cold` pulls them too)",
                                          human_bytes(cold_away));
  if (result.finished) {
    const auto copied = result.copied_bytes == 0
                            ? ""
                            : fmt::format(", {} were here under other images", human_bytes(result.copied_bytes));
    context.out << fmt::format("{}: all {}{} are here, {} were fetched{}{}\n", result.image.to_string(),
                               human_bytes(result.present_bytes), left_out.empty() ? "" : " that are wanted",
                               human_bytes(result.fetched_bytes), copied, left_out);
  } else {
    context.out << fmt::format(
        "{}: {} of {} are here, the rest is being fetched (`varve status` shows how far it is){}\n",
        result.image.to_string(), human_bytes(result.present_bytes), human_bytes(result.image_stream_bytes), left_out);
  }
}

}  // namespace

void add_pull_command(CLI::App& app, Context& context) {
  struct Arguments {
    std::string image;
    bool wait = false;
    bool cold = false;
    bool index_here = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand("pull", "Fetches the rest of an image, behind whoever is reading");
  command->add_option("IMAGE", arguments->image, kImageHelp)->required();
  command->add_flag("--wait", arguments->wait,
                    "Return when all is here; stopped by Ctrl-C, and what has arrived stays");
  command->add_flag("--cold,--all", arguments->cold, "Also what the image's index marks as cold");
  command->add_flag("--index-here", arguments->index_here, kIndexHereHelp);
  command->footer(
      "Examples:\n  varve pull registry.example/team/notebook:2026-11\n  varve pull --wait oci:image:latest\n"
      "  varve pull --wait --cold oci:image:latest\n\n"
      "The image's repository is asked for newer marks first. What is cold is fetched when it is first read, as "
      "everything else.");
  command->callback([&context, arguments] {
    run_pull(context, arguments->image, arguments->wait, arguments->cold, arguments->index_here);
  });
}

}  // namespace varve::cli
