#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/open_image.h"
#include "cli/session/daemon_access.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"
#include "fuse/control/control_protocol.h"

namespace varve::cli {
namespace {

struct MountArguments {
  std::string image;
  std::filesystem::path dir;
  std::string mode = "auto";
  bool no_prefetch = false;
  bool fill = false;
  bool index_here = false;
  bool make_dir = false;
};

// The folder to mount at, there before anything is asked of a registry. What was made goes again unless the mount is
// there at the end.
class MountPoint {
 public:
  MountPoint(const std::filesystem::path& dir, bool make) : dir_(std::filesystem::absolute(dir)) {
    std::error_code error;
    // Not what is in it, nor what it leads to: a mount that hangs must hang nobody here. The daemon judges all else.
    if (std::filesystem::symlink_status(dir_, error).type() != std::filesystem::file_type::not_found) return;
    if (!make)
      fail<NotFound>("{}: no such folder to mount at; make it, or let `varve mount --mkdir` do so", dir.string());
    for (auto at = dir_; !std::filesystem::exists(at); at = at.parent_path()) made_.push_back(at);
    std::filesystem::create_directories(dir_);
  }
  ~MountPoint() {
    std::error_code ignored;
    for (const auto& one : made_) std::filesystem::remove(one, ignored);
  }
  MountPoint(const MountPoint&) = delete;
  MountPoint& operator=(const MountPoint&) = delete;
  const std::filesystem::path& dir() const { return dir_; }
  void keep() { made_.clear(); }

 private:
  std::filesystem::path dir_;
  std::vector<std::filesystem::path> made_;  // the innermost first
};

void run_mount(Context& context, const MountArguments& arguments) {
  const Stopwatch watch;
  MountPoint point(arguments.dir, arguments.make_dir);
  const auto spec = image_spec(context, arguments.image);
  if (arguments.index_here) index_here(context, arguments.image);
  auto daemon = connect_or_start_daemon(context);
  const auto mounted = daemon.mount(spec, point.dir(), fuse::parse_mount_mode(arguments.mode),
                                    {.prefetch = !arguments.no_prefetch, .fill = arguments.fill});
  point.keep();
  const double seconds = watch.seconds();
  if (context.global.json) {
    nlohmann::json document = mounted;
    document["seconds"] = seconds;
    return context.print_json(document);
  }
  if (!mounted.why.empty() && !context.global.quiet) context.err << mounted.why << '\n';
  context.out << fmt::format("{} at {}, {} mode; {} loaded, {:.2f} s\n", mounted.image.to_string(),
                             mounted.dir.string(), to_string(mounted.mode), human_bytes(mounted.loaded_bytes), seconds);
  // Nobody of us is there any more when it happens.
  if (!context.global.quiet)
    context.err << fmt::format("if a read there fails, `varve status {}` says why\n", printable(point.dir().string()));
}

}  // namespace

void add_mount_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<MountArguments>();
  auto* command = app.add_subcommand("mount", "Mounts an indexed image read-only; its bytes arrive when they are read");
  command->add_option("IMAGE", arguments->image, kImageHelp)->required();
  command->add_option("DIR", arguments->dir, "An empty folder")->required();
  command
      ->add_option("--mode", arguments->mode,
                   "kernel: EROFS, for root on Linux 6.12 or newer; fuse: everywhere; auto: the best that works")
      ->check(CLI::IsMember({"auto", "kernel", "fuse"}))
      ->capture_default_str();
  command->add_flag("--mkdir", arguments->make_dir, "Make DIR, and the folders above it, where it is missing");
  auto* no_prefetch = command->add_flag("--no-prefetch", arguments->no_prefetch,
                                        "Fetch only what is read, not what a start is about to read");
  command
      ->add_flag("--fill", arguments->fill,
                 "Fetch the rest of the image too, behind whoever reads, for as long as it is mounted")
      ->excludes(no_prefetch);
  command->add_flag("--index-here", arguments->index_here, kIndexHereHelp);
  command->footer(
      "Examples:\n"
      "  varve mount oci:image:latest /mnt/image\n"
      "  varve mount --mode fuse --mkdir registry.example/team/notebook:2026-11 ~/image\n"
      "  varve mount --fill registry.example/team/notebook:2026-11 /mnt/image\n\n"
      "Returns when the tree can be read. Starts the daemon if none runs; `varve unmount DIR` ends the mount, "
      "`varve status DIR` shows it,\n"
      "and why a read there failed (Input/output error).");
  command->callback([&context, arguments] { run_mount(context, *arguments); });
}

}  // namespace varve::cli
