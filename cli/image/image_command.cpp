#include "cli/image/image_command.h"

#include "cli/command.h"
#include "cli/prune/prune_command.h"

namespace varve::cli {

void add_image_command(CLI::App& app, Context& context) {
  auto* image =
      app.add_subcommand("image", "Works on whole images: compares them, checks them, copies them, writes them anew");
  image->require_subcommand(1);
  image->footer("Example:\n  varve image export oci:image:latest docker-archive:image.tar");
  add_image_check_command(*image, context);
  add_image_diff_command(*image, context);
  add_image_export_command(*image, context);
  add_image_optimize_command(*image, context);
}

}  // namespace varve::cli
