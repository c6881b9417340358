#include "cli/session/session_options.h"

#include <unistd.h>

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "fuse/session/gpu_access.h"
#include "fuse/session/own_program.h"
#include "fuse/session/runtimes/runtime.h"

namespace varve::cli {
namespace {

// A GPU that was asked for and cannot be given ends the run here: frameworks fall back to the CPU without a word.
void add_devices(const Context& context, const SessionOptions& options, fuse::SessionRequest& request) {
  auto access = find_devices(context, options, options.runtime);
  if (options.gpus != "none" || !options.devices.empty())
    for (const auto& line : fuse::unmet_requirements(request.config.env, fuse::installed_driver_version()))
      log::warn("{}", line);
  request.devices = std::move(access.edits);
  request.runtime = access.runtime.empty() ? options.runtime : access.runtime;
}

// All but what the image or the tree is.
fuse::SessionRequest request_of(const Context& context, const SessionOptions& options, const oci::ImageConfig& config) {
  fuse::SessionRequest request;
  request.root = context.global.root;
  request.config = config;
  request.options.command = context.tail;
  request.options.entrypoint = options.entrypoint;
  request.options.env = options.env;
  request.options.working_dir = options.working_dir;
  request.options.user = options.user;
  request.options.network = options.network == "host";
  if (options.userns == "auto") request.ids = fuse::IdPool::of_this_machine(fuse::parse_id_range(options.userns_ids));
  for (const auto& volume : options.volumes) request.options.volumes.push_back(fuse::Volume::parse(volume));
  for (const auto& tmpfs : options.tmpfs) request.options.tmpfs.push_back(fuse::Tmpfs::parse(tmpfs));
  request.options.hostname = options.hostname;
  request.options.shm_bytes = options.shm_bytes;
  request.options.read_only = options.read_only;
  request.options.limits = options.limits;
  request.options.limits.must_hold = options.limits_hold == "enforce";
  add_devices(context, options, request);
  request.terminal = ::isatty(STDIN_FILENO) != 0;
  return request;
}

}  // namespace

bool DeviceOptions::has_gpu() const {
  const auto is_gpu = [](const std::string& device) { return device.starts_with(std::string(fuse::kGpuKind) + "="); };
  return (gpus != "none" && gpus != "0") || std::ranges::any_of(devices, is_gpu);
}

fuse::GpuAccess find_devices(const Context& context, const DeviceOptions& options, const std::string& runtime) {
  const fuse::GpuRequest wish{.gpus = options.gpus,
                              .devices = options.devices,
                              .cdi_dirs = options.cdi_dirs,
                              .runtime = runtime,
                              .root = context.global.root};
  return fuse::find_gpus(wish, [](const std::string& text) { log::info("{}", text); });
}

void add_device_options(CLI::App& command, DeviceOptions& options) {
  command.add_option("--gpus", options.gpus, "all, none, or how many of the machine's GPUs the session gets")
      ->type_name("GPUS")
      ->capture_default_str();
  command
      .add_option("--device", options.devices,
                  "A device by its name in /etc/cdi or /var/run/cdi: nvidia.com/gpu=0; may be repeated")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command
      .add_option("--cdi-spec-dir", options.cdi_dirs,
                  "Where devices are described; may be repeated, a later folder wins")
      ->type_name("DIR")
      ->allow_extra_args(false)
      ->capture_default_str();
}

std::vector<std::string> words_of(const DeviceOptions& options) {
  std::vector<std::string> words = {"--gpus", options.gpus};
  for (const auto& device : options.devices) words.insert(words.end(), {"--device", device});
  for (const auto& dir : options.cdi_dirs) words.insert(words.end(), {"--cdi-spec-dir", dir.string()});
  return words;
}

fuse::SessionRequest make_session_request(const Context& context, const SessionOptions& options,
                                          const fuse::AcquiredImage& acquired, const std::string& image) {
  auto request = request_of(context, options, oci::ImageConfig::parse(as_bytes(acquired.config_json), image));
  request.lower = acquired.dir;
  request.image = image;
  request.image_digest = acquired.image.to_string();
  return request;
}

fuse::SessionRequest make_session_request(const Context& context, const SessionOptions& options,
                                          const std::filesystem::path& tree) {
  auto request = request_of(context, options, {});
  std::error_code error;
  request.lower = std::filesystem::canonical(tree, error);
  if (error) fail<NotFound>("--rootfs {}: {}", tree.string(), error.message());
  if (!std::filesystem::is_directory(request.lower)) fail<NotFound>("{}: no folder", tree.string());
  request.image = "rootfs:" + request.lower.string();
  return request;
}

void guard_program(const Context& context, const std::string& runtime) {
  context.cancel.throw_if_cancelled();
  const bool may_be_chosen = runtime == "auto" && ::geteuid() != 0;
  if (runtime == "none" || may_be_chosen) fuse::execute_unchangeable(context.program, context.argv);
}

void check(const SessionOptions& options) {
  fuse::parse_mount_mode(options.mode);
  fuse::check_runtime_name(options.runtime);
  fuse::check_limits(options.limits);
  if (!options.hostname.empty()) fuse::check_hostname(options.hostname);
  for (const auto& tmpfs : options.tmpfs) fuse::Tmpfs::parse(tmpfs);
}

void add_terminal_options(CLI::App& command, bool& tty) {
  command.add_flag_function(
      "-i,--interactive", [](std::int64_t) {}, "Pass standard input on, which is done anyway");
  command.add_flag("-t,--tty", tty, "Fail if standard input is no terminal; if it is one, the command has one anyway");
}

void check_terminal(bool tty) {
  if (tty && ::isatty(STDIN_FILENO) == 0)
    throw UsageError("--tty: standard input is no terminal; leave -t out, and the command gets none");
}

void add_container_options(CLI::App& command, SessionOptions& options) {
  const auto add_bytes = [&](const char* name, std::uint64_t& bytes, const char* help) {
    command.add_option(name, bytes, help)->type_name("SIZE")->transform(CLI::AsSizeValue(true))->capture_default_str();
  };
  command
      .add_option("--env-file", options.env_files,
                  "Variables from a file, one NAME=value a line; --env wins; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  add_bytes("-m,--memory", options.limits.memory_bytes, "At most so much RAM, as 16GB or 8GiB; 0: no limit");
  command.add_option("--cpus", options.limits.cpus, "At most so many processors' worth of time, as 1.5; 0: no limit")
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--pids-limit", options.limits.pids, "At most so many processes and threads; 0: no limit")
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--limits", options.limits_hold,
                  "Where --memory, --cpus and --pids-limit cannot be held: enforce ends the run with 125, best-effort "
                  "runs without")
      ->check(CLI::IsMember({"enforce", "best-effort"}))
      ->capture_default_str();
  add_bytes("--shm-size", options.shm_bytes, "Size of /dev/shm; 0: half of the memory");
  command.add_option("--tmpfs", options.tmpfs, "A folder in memory: DST[:size=1g,mode=700,exec,ro]; may be repeated")
      ->type_name("DST")
      ->allow_extra_args(false);
  command.add_option("--hostname", options.hostname, "The name of the session's machine; without, this machine's")
      ->type_name("NAME");
  command.add_flag("--read-only", options.read_only, "Nothing but volumes and --tmpfs can be written to");
}

void add_session_options(CLI::App& command, SessionOptions& options, const std::string& volume) {
  command.add_option(volume, options.volumes, "Mount a file or folder of this machine: SRC:DST[:ro]; may be repeated")
      ->type_name("SRC:DST")
      ->allow_extra_args(false);
  command.add_option("-e,--env", options.env, "Set a variable, or hand on the own value of NAME; may be repeated")
      ->type_name("K=V")
      ->allow_extra_args(false);
  command.add_option("-w,--workdir", options.working_dir, "The working directory, made if missing")->type_name("DIR");
  command.add_option("-u,--user", options.user, "Who runs the command: name or number, with :group if need be")
      ->type_name("USER");
  command.add_option("--entrypoint", options.entrypoint, "Replaces the image's entrypoint and command; empty for none")
      ->type_name("PROGRAM");
  command.add_option("--mode", options.mode, "How the image is mounted: auto, kernel or fuse")
      ->type_name("MODE")
      ->check(CLI::IsMember({"auto", "kernel", "fuse"}))
      ->capture_default_str();
  command
      .add_option("--runtime", options.runtime,
                  "Who carries it out: auto, runc, crun, none (Varve itself; as root only if asked for) or nvidia "
                  "(NVIDIA's container runtime)")
      ->type_name("RUNTIME")
      ->check(CLI::IsMember({"auto", "runc", "crun", "none", "nvidia"}))
      ->capture_default_str();
  command.add_option("--network", options.network, "host: the machine's; none: nothing but a loopback of its own")
      ->check(CLI::IsMember({"host", "none"}))
      ->capture_default_str();
  command
      .add_option(
          "--userns", options.userns,
          "As root. auto: a user namespace with ids of its own, so that its root is nobody on the machine; host: none")
      ->check(CLI::IsMember({"auto", "host"}))
      ->capture_default_str();
  command
      .add_option("--userns-ids", options.userns_ids,
                  "The ids that sessions may have where /etc/subuid gives none to varve, containers or root")
      ->type_name("FIRST:COUNT")
      ->capture_default_str();
  add_device_options(command, options);
}

}  // namespace varve::cli
