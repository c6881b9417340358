#include <unistd.h>

#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/config.h"
#include "cli/daemon_access.h"
#include "cli/run_recording.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "fuse/control_client.h"
#include "fuse/gpus.h"
#include "fuse/runtime.h"
#include "fuse/session.h"

namespace varve::cli {
namespace {

using nlohmann::json;

struct RunOptions {
  std::string image;
  std::string name;
  bool remove = false;
  std::vector<std::string> volumes;
  std::vector<std::string> env;
  std::string working_dir;
  std::string user;
  std::optional<std::string> entrypoint;
  std::filesystem::path stats_file;
  std::string mode = "auto";
  std::string runtime = "auto";
  std::string network = "host";
  std::string gpus = "none";
  std::vector<std::string> devices;
  std::vector<std::filesystem::path> cdi_dirs = fuse::CdiRegistry::default_dirs();
  bool record = false;
  std::filesystem::path usage_spool;  // "" = under the root
  Stopwatch since_start;
};

// What the daemon fetched for this image while the session ran. Other sessions of the same image are not told apart.
struct Traffic {
  fuse::ImageStats before;
  fuse::ImageStats after;
};

json recording_stats(const RunRecording& recording, const fuse::SessionResult& result) {
  json stats = {{"session", recording.session()}, {"switched_on", recording.switched_on()}, {"files", recording.files()}};
  stats["file_overflows"] = result.access_overflows;
  stats["files_unwatched"] = result.accesses_unwatched.empty() ? json(nullptr) : json(result.accesses_unwatched);
  stats["failure"] = recording.failure().empty() ? json(nullptr) : json(recording.failure());
  return stats;
}

void write_stats(const RunOptions& options, const fuse::SessionResult& result, const fuse::AcquiredImage& acquired, const Traffic& traffic,
                 std::optional<double> ready_seconds, const RunRecording* recording) {
  json stats = {{"image", acquired.image.to_string()},
                {"mode", std::string(fuse::to_string(acquired.mode))},
                {"runtime", result.runtime},
                {"session", result.id},
                {"mount_seconds", acquired.seconds},
                {"seconds", options.since_start.seconds()},
                {"fetched_bytes", traffic.after.fetched_bytes - traffic.before.fetched_bytes + acquired.loaded_bytes},
                {"loaded_bytes", acquired.loaded_bytes},
                {"requests", traffic.after.requests - traffic.before.requests},
                {"stream_bytes", traffic.after.decoded_bytes - traffic.before.decoded_bytes},
                {"image_stream_bytes", traffic.after.image_stream_bytes},
                {"present_bytes", traffic.after.present_bytes},
                {"errors", traffic.after.errors - traffic.before.errors},
                {"exit_status", result.exit_status}};
  stats["ready_seconds"] = ready_seconds ? json(*ready_seconds) : json(nullptr);
  stats["recorded"] = recording == nullptr ? json(nullptr) : recording_stats(*recording, result);
  write_file_atomically(options.stats_file, as_bytes(stats.dump(2) + "\n"));
}

// A GPU that was asked for and cannot be given ends the run here: frameworks fall back to the CPU without a word.
fuse::CdiEdits find_devices(const RunOptions& options, const oci::ImageConfig& config) {
  auto names = options.devices;
  if (options.gpus == "none" && names.empty()) return {};
  const auto registry = fuse::CdiRegistry::read(options.cdi_dirs);
  for (const auto& problem : registry.problems()) log::warn("{}", problem);
  const auto gpus = fuse::select_gpus(registry, options.gpus);
  names.insert(names.end(), gpus.begin(), gpus.end());
  for (const auto& line : fuse::unmet_requirements(config.env, fuse::installed_driver_version())) log::warn("{}", line);
  return registry.edits(names);
}

fuse::SessionRequest make_request(const Context& context, const RunOptions& options, const fuse::AcquiredImage& acquired, std::string image) {
  fuse::SessionRequest request;
  request.root = context.global.root;
  request.lower = acquired.dir;
  request.image = std::move(image);
  request.image_digest = acquired.image.to_string();
  request.config = oci::ImageConfig::parse(as_bytes(acquired.config_json), request.image);
  request.options.command = context.tail;
  request.options.entrypoint = options.entrypoint;
  request.options.env = options.env;
  request.options.working_dir = options.working_dir;
  request.options.user = options.user;
  request.options.network = options.network == "host";
  for (const auto& volume : options.volumes) request.options.volumes.push_back(fuse::Volume::parse(volume));
  request.devices = find_devices(options, request.config);
  request.name = options.name;
  request.remove_at_exit = options.remove;
  request.runtime = options.runtime;
  request.terminal = ::isatty(STDIN_FILENO) != 0;
  return request;
}

std::unique_ptr<RunRecording> begin_recording(const Context& context, const RunOptions& options, const Digest& image, fuse::SessionRequest& request) {
  if (!options.record) return nullptr;
  const auto usage = context.global.root / "usage";
  return RunRecording::begin({.spool = options.usage_spool.empty() ? usage / "spool" : std::filesystem::absolute(options.usage_spool),
                              .recorder = usage / "recorder",
                              .image = image,
                              .version = VARVE_VERSION,
                              .own_variable = process_environment()},
                             request, [](const std::string& text) { log::warn("{}", text); });
}

void end_recording(RunRecording& recording, const fuse::SessionResult& result) {
  recording.end(result);
  if (!recording.failure().empty()) log::warn("records of the session are lost: {}", recording.failure());
  if (!result.accesses_unwatched.empty()) log::info("which files of the image the session opens is not recorded: {}", result.accesses_unwatched);
  if (result.access_overflows != 0) log::info("the kernel lost file accesses of the session {} times", result.access_overflows);
}

int run_image(Context& context, const RunOptions& options) {
  const auto image = image_spec(context, options.image);
  const auto mode = fuse::parse_mount_mode(options.mode);
  auto client = connect_or_start_daemon(context);
  const auto acquired = client.acquire(image, mode);
  context.cancel.throw_if_cancelled();
  if (!acquired.why.empty()) log::info("{}", acquired.why);
  Traffic traffic;
  traffic.before = client.image_stats(acquired.image).value_or(fuse::ImageStats{});
  std::optional<double> ready_seconds;
  auto request = make_request(context, options, acquired, image.reference);
  const auto recording = begin_recording(context, options, acquired.image, request);
  const auto result = fuse::run_session(
      request, [&] { ready_seconds = options.since_start.seconds(); }, [](const std::string& text) { log::info("{}", text); });
  if (recording) end_recording(*recording, result);
  if (!result.failure.empty()) context.err << "varve: error: " << result.failure << '\n';
  if (!options.stats_file.empty()) {
    traffic.after = client.image_stats(acquired.image).value_or(traffic.before);
    write_stats(options, result, acquired, traffic, ready_seconds, recording.get());
  }
  return result.exit_status;
}

}  // namespace

void add_run_command(CLI::App& app, Context& context) {
  const auto options = std::make_shared<RunOptions>();
  auto* run = app.add_subcommand("run", "Runs a command in a session: a private writable layer over a lazily mounted image");
  run->add_option("IMAGE", options->image, "The image, indexed; the words after -- are the command, else the image's own")->required();
  run->add_flag("--rm", options->remove, "Remove the writable layer at the end");
  run->add_option("--name", options->name, "A name for `varve session`")->type_name("NAME");
  run->add_option("--volume", options->volumes, "Mount a file or folder of this machine: SRC:DST[:ro]; may be repeated")
      ->type_name("SRC:DST")
      ->allow_extra_args(false);
  run->add_option("-e,--env", options->env, "Set a variable, or hand on the own value of NAME; may be repeated")->type_name("K=V")->allow_extra_args(false);
  run->add_option("-w,--workdir", options->working_dir, "The working directory, made if missing")->type_name("DIR");
  run->add_option("-u,--user", options->user, "Who runs the command: name or number, with :group if need be")->type_name("USER");
  run->add_option("--entrypoint", options->entrypoint, "Replaces the image's entrypoint and command; empty for none")->type_name("PROGRAM");
  run->add_option("--stats", options->stats_file, "Write times and traffic to this file, as JSON")->type_name("FILE");
  run->add_option("--mode", options->mode, "How the image is mounted: auto, kernel or fuse")->type_name("MODE");
  run->add_option("--runtime", options->runtime, "Who carries it out: auto, runc, crun, bwrap or none (Varve itself)")->type_name("RUNTIME");
  run->add_option("--network", options->network, "host: the machine's; none: nothing but a loopback of its own")->check(CLI::IsMember({"host", "none"}))->capture_default_str();
  run->add_option("--gpus", options->gpus, "all, none, or how many of the machine's GPUs the session gets")->type_name("GPUS")->capture_default_str();
  run->add_option("--device", options->devices, "A device by its name in /etc/cdi or /var/run/cdi: nvidia.com/gpu=0; may be repeated")->type_name("NAME")->allow_extra_args(false);
  run->add_option("--cdi-spec-dir", options->cdi_dirs, "Where devices are described; may be repeated, a later folder wins")->type_name("DIR")->allow_extra_args(false)->capture_default_str();
  run->add_flag("--record,!--no-record", options->record, "Record which libraries and files of the image the session uses, for `varve usage`");
  run->add_option("--usage-spool", options->usage_spool, "The folder that records go to (default: usage/spool under --root)")->type_name("DIR");
  run->footer(
      "Examples:\n  varve run --rm oci:image:latest -- python3 -c 'import numpy'\n"
      "  varve run --name lab --volume $HOME/notebooks:/work -w /work registry.example/team/science:42 -- jupyter lab\n"
      "  varve run --rm --gpus all oci:image:latest -- python3 -c 'import torch; print(torch.cuda.device_count())'\n\n"
      "The exit status is the command's; 125 if Varve failed before it, 126 if it may not be executed, 127 if it is not there.");
  run->callback([&context, options] {
    try {
      context.exit_status = run_image(context, *options);
    } catch (const std::exception& error) {
      context.err << "varve: error: " << error.what() << '\n';
      context.exit_status = fuse::kOwnFailure;
    }
  });
}

}  // namespace varve::cli
