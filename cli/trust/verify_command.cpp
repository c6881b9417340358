#include <algorithm>
#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/session/daemon_access.h"
#include "core/base/errors.h"
#include "core/base/text/units.h"
#include "fuse/control/control_protocol.h"

namespace varve::cli {
namespace {

constexpr int kFindings = 3;

void run_verify(Context& context, const std::string& image, bool store, bool deep) {
  if (deep && store) throw UsageError("verify: --deep is about an image; --store has no image to compare with");
  if (image.empty() != store) throw UsageError("verify: give either an image or --store");
  const auto spec = store ? fuse::ImageSpec{} : image_spec(context, image);
  auto daemon = connect_or_start_daemon(context);
  Progress progress;
  fuse::VerifyResult result;
  {
    const ProgressLine line(progress, "verify", context.global.quiet);
    const auto callback = show_progress(progress);
    result =
        store ? daemon.verify_store(callback, context.cancel) : daemon.verify(spec, deep, callback, context.cancel);
  }
  if (!result.bad.empty() || !result.stale.empty() || result.refuted()) context.exit_status = kFindings;
  if (context.global.json) {
    nlohmann::json document{{"checked_bytes", result.checked_bytes}, {"bad", result.bad}, {"stale", result.stale}};
    if (!store) document["absent_bytes"] = result.absent_bytes;
    if (deep) {
      auto layers = nlohmann::json::array();
      for (const auto& layer : result.layers)
        layers.push_back({{"digest", layer.layer.to_string()},
                          {"complete", layer.complete},
                          {"proved", layer.proved},
                          {"refuted", layer.refuted}});
      document["layers"] = std::move(layers);
      document["tree_proved"] = result.tree_proved;
      document["tree_refuted"] = result.tree_refuted;
    }
    context.print_json(document);
    return;
  }
  for (const auto& span : result.bad)
    context.out << fmt::format("damaged: layer {} at {}, {} bytes; dropped, to be fetched anew\n",
                               span.layer.to_string(), span.stream_offset, span.length);
  for (const auto& stale : result.stale)
    context.out << fmt::format("mount anew: {} ({}) at {}: {}{} may show what was damaged: {}\n", stale.reference,
                               stale.image.to_string(), stale.dir, stale.file,
                               stale.files > 1 ? fmt::format(" and {} more files", stale.files - 1) : "", stale.why);
  for (const auto& layer : result.layers)
    if (!layer.refuted.empty()) context.out << fmt::format("false: {}\n", layer.refuted);
  if (!result.tree_refuted.empty()) context.out << fmt::format("false: {}\n", result.tree_refuted);
  if (deep) {
    const auto proved =
        std::count_if(result.layers.begin(), result.layers.end(), [](const auto& layer) { return layer.proved; });
    context.out << fmt::format("{} of {} layers proved by their diff_ids, the tree {}\n", proved, result.layers.size(),
                               result.tree_proved            ? "proved by the layers"
                               : result.tree_refuted.empty() ? "not proved"
                                                             : "is false");
  }
  context.out << fmt::format("checked {} that are here: {} damaged\n", human_bytes(result.checked_bytes),
                             result.bad.empty() ? "nothing" : fmt::format("{} spans", result.bad.size()));
  if (result.absent_bytes > 0)
    context.out << fmt::format("not checked: {} of the image that are not here (`varve pull --wait` fetches them)\n",
                               human_bytes(result.absent_bytes));
}

}  // namespace

void add_verify_command(CLI::App& app, Context& context) {
  struct Arguments {
    std::string image;
    bool store = false;
    bool deep = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand(
      "verify", "Digests again what is in the store; damaged spans are dropped and fetched anew when read");
  command->add_option("IMAGE", arguments->image, kImageHelp);
  command->add_flag("--store", arguments->store, "All layers in the store, mounted or not");
  command->add_flag("--deep", arguments->deep,
                    "Also whether complete layers are what the image names (diff_id), and the tree what they make");
  command->footer(
      "Examples:\n  varve verify oci:image:latest\n  varve verify --store --json\n"
      "  varve pull oci:image:latest && varve verify --deep oci:image:latest\n\n"
      "Exit status 3 if something was damaged, or is still seen so through a mount that must be mounted anew, or is "
      "false. An index that --deep proves counts from then on as one "
      "that was made here; one that it\n"
      "refutes is not used again. Layers that are not complete prove nothing: pull them first.");
  command->callback(
      [&context, arguments] { run_verify(context, arguments->image, arguments->store, arguments->deep); });
}

}  // namespace varve::cli
