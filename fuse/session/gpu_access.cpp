#include "fuse/session/gpu_access.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/process/child_process.h"
#include "core/base/text/strings.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/gpus.h"

namespace varve::fuse {
namespace {

constexpr std::chrono::seconds kGenerateLimit{60};  // a driver that hangs hangs every program that asks it
constexpr std::uint32_t kMaxGpus = 1024;
constexpr std::uint64_t kMaxKeyBytes = 1 << 20;

bool is_nvidia(std::string_view device) {
  return device.starts_with(kGpuKind) && device.substr(kGpuKind.size()).starts_with("=");
}

std::string names_in(const std::filesystem::path& folder, std::string_view beginning) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with(beginning)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return fmt::format("{}", fmt::join(names, " "));
}

// Equal as long as the program would say the same: another driver has other files, another GPU another device.
std::string state_of_machine(const std::filesystem::path& program) {
  struct stat status {};
  if (::stat(program.c_str(), &status) != 0) fail_errno("{}", program.string());
  return fmt::format("{} {} {}.{:09}\ndriver {}\ndevices {}\ngpus {}\n", program.string(), status.st_size,
                     status.st_mtim.tv_sec, status.st_mtim.tv_nsec, installed_driver_version(),
                     names_in("/dev", "nvidia"), names_in("/proc/driver/nvidia/gpus", ""));
}

// The folder with the specification that nvidia-ctk made. Throws if it made none.
std::filesystem::path generate_specification(const std::filesystem::path& program, const std::filesystem::path& root) {
  const auto folder = root / "cdi";
  const auto made_for = folder / "made-for";
  const auto state = state_of_machine(program);
  if (const auto kept = read_file_if_there(made_for, kMaxKeyBytes);
      kept && as_text(*kept) == state && std::filesystem::exists(folder / "nvidia.yaml"))
    return folder;
  const auto what = program.string() + " cdi generate";
  const CancelFlag never;
  const auto result = run_child({.words = {program.string(), "cdi", "generate"},
                                 .input = {},
                                 .limit = kGenerateLimit,
                                 .max_output = kMaxCdiFileBytes,
                                 .environment = {}},
                                never);
  if (result.timed_out) fail<Error>("{} did not end within {} s", what, kGenerateLimit.count());
  if (result.exit_status != 0)
    fail<Error>("{} ended with status {}: {}", what, result.exit_status, last_line(result.err).substr(0, 300));
  const auto document = parse_cdi(result.out, true, "what " + what + " printed");
  if (document.kind != kGpuKind || document.devices.empty()) fail<Error>("{} describes no {}", what, kGpuKind);
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "nvidia.yaml", as_bytes(result.out));
  write_file_atomically(made_for, as_bytes(state));
  return folder;
}

// What nvidia-container-runtime reads in the variables of the session: all, or the first N.
std::string visible_devices(std::string_view gpus) {
  if (gpus == "all") return "all";
  std::uint32_t count = 0;
  const auto [end, error] = std::from_chars(gpus.data(), gpus.data() + gpus.size(), count);
  if (gpus == "none" || (error == std::errc() && end == gpus.data() + gpus.size() && count == 0))
    return "void";  // whatever the image's own variable says
  if (error != std::errc() || end != gpus.data() + gpus.size())
    fail<UsageError>("--gpus {:.100}: write all, none, or how many", gpus);
  if (count > kMaxGpus) fail<UsageError>("--gpus {}: at most {}", count, kMaxGpus);
  std::string list;
  for (std::uint32_t number = 0; number < count; ++number) list += fmt::format("{}{}", number == 0 ? "" : ",", number);
  return list;
}

GpuAccess through_runtime(const GpuRequest& wish, const CdiRegistry& registry) {
  if (std::ranges::any_of(wish.devices, is_nvidia))
    fail<UsageError>("--device {}= with NVIDIA's container runtime: say --gpus instead", kGpuKind);
  GpuAccess access{.edits = registry.edits(wish.devices), .runtime = std::string(kNvidiaRuntime)};
  access.edits.env.push_back("NVIDIA_VISIBLE_DEVICES=" + visible_devices(wish.gpus));
  return access;
}

CdiRegistry read_specifications(const std::vector<std::filesystem::path>& dirs) {
  auto registry = CdiRegistry::read(dirs);
  for (const auto& problem : registry.problems()) log::warn("{}", problem);
  return registry;
}

}  // namespace

GpuAccess find_gpus(const GpuRequest& wish, const std::function<void(const std::string&)>& say) {
  const bool by_runtime = wish.runtime == kNvidiaRuntime;
  const bool any = wish.gpus != "none" && wish.gpus != "0";
  if (!any && wish.devices.empty() && !by_runtime) return {};
  auto registry = read_specifications(wish.cdi_dirs);
  if (by_runtime) return through_runtime(wish, registry);
  if ((any || std::ranges::any_of(wish.devices, is_nvidia)) && registry.devices(kGpuKind).empty()) {
    if (const auto program = find_program("nvidia-ctk"); !program.empty()) {
      try {
        auto dirs = wish.cdi_dirs;
        dirs.push_back(generate_specification(program, wish.root));
        registry = read_specifications(dirs);
      } catch (const std::exception& error) {
        if (find_program("nvidia-container-runtime").empty())
          fail<NotFound>("no specification describes this machine's GPUs, and none can be made: {}", error.what());
        say(fmt::format("no specification of the GPUs: {}", error.what()));
      }
    }
    const bool runtime_is_there = !find_program("nvidia-container-runtime").empty();
    if (registry.devices(kGpuKind).empty() && any && wish.runtime == "auto" && runtime_is_there) {
      say("the GPUs come through nvidia-container-runtime");
      return through_runtime(wish, registry);
    }
    if (registry.devices(kGpuKind).empty() && !runtime_is_there && !find_program("nvidia-container-cli").empty())
      fail<NotFound>(
          "this machine has nvidia-container-cli, but neither nvidia-ctk nor nvidia-container-runtime, through which "
          "sessions get GPUs: install the package nvidia-container-toolkit");
  }
  auto names = wish.devices;
  const auto gpus = select_gpus(registry, wish.gpus);
  names.insert(names.end(), gpus.begin(), gpus.end());
  return {.edits = registry.edits(names), .runtime = {}};
}

}  // namespace varve::fuse
