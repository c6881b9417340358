#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/session/daemon_access.h"
#include "core/base/errors.h"

namespace varve::cli {

void add_unmount_command(CLI::App& app, Context& context) {
  struct Arguments {
    std::filesystem::path dir;
    bool detach = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand("unmount", "Ends a mount made by `varve mount`");
  command->add_option("DIR", arguments->dir, "Where it is mounted")->required();
  command->add_flag("--detach", arguments->detach,
                    "Take a busy mount out of sight now; it ends with the last process that uses it");
  command->footer("Example:\n  varve unmount /mnt/image");
  command->callback([&context, arguments] {
    const auto dir = name_of_mount_point(arguments->dir);
    auto daemon = fuse::ControlClient::connect(daemon_paths(context));
    if (!daemon)
      fail<NotFound>("{}: varve has mounted nothing there, as no daemon runs for {}", dir.string(),
                     context.global.root.string());
    const auto failed = failed_reads(daemon->status(), dir);
    daemon->unmount(dir, arguments->detach);
    if (!failed.empty() && !context.global.quiet) context.err << "varve: warning: " << failed << '\n';
    if (context.global.json) context.print_json({{"dir", dir.string()}});
  });
}

}  // namespace varve::cli
