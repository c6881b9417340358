// The program behind `varve snapshotter`, apart from it because of what gRPC brings along. Its one argument is what
// that command has settled, as JSON: cli/session/snapshotter_command.cpp.
#include <cstdio>

#include "core/base/error_text.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/json_document.h"
#include "core/base/text/safe_text.h"
#include "fuse/control/control_protocol.h"
#include "snapshotter/snapshotter_process.h"

namespace {

using namespace varve;

snapshotter::SnapshotterOptions read_options(std::string_view text) {
  const auto document = JsonValue::parse(text, "what `varve snapshotter` has settled");
  const std::filesystem::path root = document["root"].text();
  return {.address = document["address"].text(),
          .group = document["group"].text(),
          .dir = root / "snapshotter",
          .trees = {.paths = {.root = root, .run_dir = document["run_dir"].text()},
                    .program = document["program"].text(),
                    .image = fuse::read_image_spec(document["image"]),
                    .mode = fuse::parse_mount_mode(document["mode"].text())},
          .metrics = document["metrics"].text()};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 2) fail<UsageError>("this program is started by `varve snapshotter`");
    log::set_level(JsonValue::parse(argv[1], "options")["debug"].flag() ? log::Level::kDebug : log::Level::kInfo);
    snapshotter::run_snapshotter(read_options(argv[1]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "varve: error: %s\n", message_text(error_text(error)).c_str());
    return exit_status_for(error);
  }
}
