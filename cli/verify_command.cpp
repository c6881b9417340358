#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/daemon_access.h"
#include "core/base/errors.h"

namespace varve::cli {
namespace {

constexpr int kFindings = 3;

void run_verify(Context& context, const std::string& image, bool store) {
  if (image.empty() != store) throw UsageError("verify: give either an image or --store");
  const auto spec = store ? fuse::ImageSpec{} : image_spec(context, image);
  auto daemon = connect_or_start_daemon(context);
  Progress progress;
  fuse::VerifyResult result;
  {
    const ProgressLine line(progress, "verify", context.global.quiet);
    const auto callback = show_progress(progress);
    result = store ? daemon.verify_store(callback, context.cancel) : daemon.verify(spec, callback, context.cancel);
  }
  if (!result.bad.empty()) context.exit_status = kFindings;
  if (context.global.json) {
    auto bad = nlohmann::json::array();
    for (const auto& span : result.bad) bad.push_back({{"layer", span.layer.to_string()}, {"stream_offset", span.stream_offset}, {"length", span.length}});
    context.print_json({{"checked_bytes", result.checked_bytes}, {"bad", std::move(bad)}});
    return;
  }
  for (const auto& span : result.bad)
    context.out << fmt::format("damaged: layer {} at {}, {} bytes; dropped, to be fetched anew\n", span.layer.to_string(), span.stream_offset, span.length);
  context.out << fmt::format("{} checked, {} damaged\n", human_bytes(result.checked_bytes), result.bad.empty() ? "nothing" : fmt::format("{} spans", result.bad.size()));
}

}  // namespace

void add_verify_command(CLI::App& app, Context& context) {
  struct Arguments {
    std::string image;
    bool store = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand("verify", "Digests again what is in the store; damaged spans are dropped and fetched anew when read");
  command->add_option("IMAGE", arguments->image, kImageHelp);
  command->add_flag("--store", arguments->store, "All layers in the store, mounted or not");
  command->footer("Examples:\n  varve verify oci:image:latest\n  varve verify --store --json\n\nExit status 3 if something was damaged.");
  command->callback([&context, arguments] { run_verify(context, arguments->image, arguments->store); });
}

}  // namespace varve::cli
