#include <memory>
#include <optional>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/daemon_access.h"

namespace varve::cli {
namespace {

void run_pull(Context& context, const std::string& image, bool wait) {
  const auto spec = image_spec(context, image);
  auto daemon = connect_or_start_daemon(context);
  Progress progress;
  fuse::PullResult result;
  {
    std::optional<ProgressLine> line;
    if (wait) line.emplace(progress, "pull", context.global.quiet);
    result = daemon.pull(spec, wait, show_progress(progress), context.cancel);
  }
  if (context.global.json) {
    context.print_json({{"image", result.image.to_string()},
                        {"fetched_bytes", result.fetched_bytes},
                        {"present_bytes", result.present_bytes},
                        {"image_stream_bytes", result.image_stream_bytes},
                        {"finished", result.finished}});
    return;
  }
  if (result.finished) {
    context.out << fmt::format("{}: all {} are here, {} were fetched\n", result.image.to_string(), human_bytes(result.present_bytes), human_bytes(result.fetched_bytes));
  } else {
    context.out << fmt::format("{}: {} of {} are here, the rest is being fetched (`varve status` shows it for what is mounted)\n", result.image.to_string(),
                               human_bytes(result.present_bytes), human_bytes(result.image_stream_bytes));
  }
}

}  // namespace

void add_pull_command(CLI::App& app, Context& context) {
  struct Arguments {
    std::string image;
    bool wait = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand("pull", "Fetches the rest of an image, behind whoever is reading");
  command->add_option("IMAGE", arguments->image, kImageHelp)->required();
  command->add_flag("--wait", arguments->wait, "Return when all is here; stopped by Ctrl-C, and what has arrived stays");
  command->footer("Examples:\n  varve pull registry.example/team/notebook:2026-11\n  varve pull --wait oci:image:latest");
  command->callback([&context, arguments] { run_pull(context, arguments->image, arguments->wait); });
}

}  // namespace varve::cli
