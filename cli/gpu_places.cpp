#include "cli/gpu_places.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "analyzer/cuda/manifest.h"
#include "cli/child_sessions.h"
#include "cli/daemon_access.h"
#include "cli/image_contents.h"
#include "core/base/child_process.h"
#include "core/base/clock.h"
#include "core/base/embedded.h"
#include "core/base/file.h"
#include "core/base/json_shape.h"
#include "core/base/log.h"
#include "core/base/random.h"
#include "fuse/daemon/control_client.h"
#include "fuse/session/gpu_access.h"
#include "fuse/session/gpus.h"
#include "gpu/probe_output.h"

namespace varve::cli {

EmbeddedFiles gpu_probe_files();

namespace {

using nlohmann::json;

constexpr int kOwnFailure = 125;
constexpr std::uint64_t kMaxStatsBytes = 1u << 20;
constexpr std::size_t kMaxFolders = 100;
constexpr std::size_t kMaxFolderName = 1000;
const std::string kProbeInSession = "/run/varve/gpu-probe";
constexpr std::chrono::seconds kPythonFoldersLimit{300};
// The folders that torch looks for nvidia/*/lib in.
constexpr std::string_view kFoldersScript =
    "import json, sys\nprint('varve-gpu-probe: ' + json.dumps({'folders': [f for f in sys.path if f.startswith('/') and f.endswith('-packages')]}))\n";

std::vector<std::string> parse_folders(std::string_view output) {
  std::vector<std::string> folders;
  const auto mark = std::string(gpu::kProbeMark) + " ";
  while (!output.empty()) {
    const auto line = output.substr(0, output.find('\n'));
    output.remove_prefix(std::min(line.size() + 1, output.size()));
    if (!line.starts_with(mark)) continue;
    check_json_shape(line, 4, 10'000, "the folders of Python");
    const auto answer = json::parse(line.substr(mark.size()), nullptr, false);
    if (!answer.is_object() || !answer.contains("folders") || !answer["folders"].is_array()) continue;
    for (const auto& folder : answer["folders"])
      if (folder.is_string() && folders.size() < kMaxFolders && folder.get_ref<const std::string&>().starts_with('/') &&
          folder.get_ref<const std::string&>().size() <= kMaxFolderName)
        folders.push_back(folder.get<std::string>());
  }
  return folders;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// What all places share: the probe is told where the Python of the place has its packages.
class Place : public gpu::StepRunner {
 public:
  gpu::ProgramOutput probe(const std::vector<std::string>& words, gpu::Store store,
                           std::chrono::seconds limit) override {
    std::vector<std::string> command = {probe_program()};
    command.insert(command.end(), words.begin(), words.end());
    // A machine without a driver needs no Python to say so.
    if (words.front() != "driver") {
      if (!folders_) folders_ = find_folders();
      for (const auto& folder : *folders_) command.insert(command.end(), {"--library-dir", folder});
    }
    return run(command, store, limit);
  }

  gpu::ProgramOutput python(std::string_view script, const std::vector<std::string>& words, gpu::Store store,
                            std::chrono::seconds limit) override {
    std::vector<std::string> command = {"python3", "-c", std::string(script)};
    command.insert(command.end(), words.begin(), words.end());
    return run(command, store, limit);
  }

  gpu::StepResult manifest() override {
    gpu::StepResult result;
    result.step = "manifest";
    result.outcome = gpu::Outcome::kSkipped;
    result.detail = "nothing says what CUDA files there should be: --manifest FILE, which --write-manifest FILE makes";
    return result;
  }

 protected:
  virtual std::string probe_program() = 0;
  virtual gpu::ProgramOutput run(const std::vector<std::string>& command, gpu::Store store,
                                 std::chrono::seconds limit) = 0;

 private:
  std::vector<std::string> find_folders() {
    const auto output = python(kFoldersScript, {}, gpu::Store::kWarm, kPythonFoldersLimit);
    if (output.exit_status == 0 && !output.timed_out) return parse_folders(output.out);
    log::info("the probe looks for wheels in the usual folders: python3 does not say where its own are: {}",
              last_line(output.err));
    return {};
  }

  std::optional<std::vector<std::string>> folders_;
};

gpu::ProgramOutput output_of(ChildResult child) {
  gpu::ProgramOutput output;
  output.exit_status = child.exit_status;
  output.timed_out = child.timed_out;
  output.out = std::move(child.out);
  output.err = std::move(child.err);
  output.seconds = child.seconds;
  return output;
}

class ThisMachine final : public Place {
 public:
  explicit ThisMachine(const Context& context) : context_(context), probe_(probe_file(context.global.root)) {}

 protected:
  std::string probe_program() override { return probe_; }

  gpu::ProgramOutput run(const std::vector<std::string>& command, gpu::Store, std::chrono::seconds limit) override {
    ChildProgram program;
    program.words = command;
    program.limit = limit;
    program.max_output = gpu::kMaxProbeOutput;
    program.end_descendants = true;
    return output_of(run_child(program, context_.cancel));
  }

 private:
  const Context& context_;
  std::string probe_;
};

const std::string kColdPrefix = "cold-";

// The state of a cold step: a folder that goes with all that is in it, after the daemon that serves it.
class TemporaryRoot {
 public:
  explicit TemporaryRoot(std::filesystem::path dir) : dir_(std::move(dir)) {
    std::filesystem::create_directories(dir_);
  }
  ~TemporaryRoot() {
    try {
      if (auto client = fuse::ControlClient::connect({.root = dir_, .run_dir = dir_ / "run"})) client->shutdown();
      std::filesystem::remove_all(dir_);
    } catch (const std::exception& error) {
      log::warn("the store of a cold step is left in {}: {}", dir_.string(), error.what());
    }
  }
  TemporaryRoot(const TemporaryRoot&) = delete;
  TemporaryRoot& operator=(const TemporaryRoot&) = delete;
  const std::filesystem::path& path() const { return dir_; }

 private:
  std::filesystem::path dir_;
};

// What a check left that was killed: nobody else has such folders, as one check runs at a time.
void remove_left_roots(const std::filesystem::path& parent) {
  std::error_code none;
  std::vector<std::filesystem::path> left;
  for (const auto& entry : std::filesystem::directory_iterator(parent, none))
    if (entry.path().filename().string().starts_with(kColdPrefix)) left.push_back(entry.path());
  for (const auto& dir : left) TemporaryRoot gone(dir);
}

class Sessions final : public Place {
 public:
  Sessions(const Context& context, const GpuPlace& place)
      : context_(context),
        place_(place),
        probe_(probe_file(context.global.root)),
        stats_(context.global.root / "gpu" / "stats.json") {
    remove_left_roots(context.global.root / "gpu");
  }
  ~Sessions() override {
    std::error_code ignored;
    std::filesystem::remove(stats_, ignored);
  }

  gpu::StepResult manifest() override {
    if (place_.manifest.empty()) return Place::manifest();
    const Stopwatch watch;
    auto result = compare_manifest();
    result.seconds = watch.seconds();
    return result;
  }

 protected:
  std::string probe_program() override { return kProbeInSession; }

  gpu::ProgramOutput run(const std::vector<std::string>& command, gpu::Store store,
                         std::chrono::seconds limit) override {
    if (store == gpu::Store::kWarm) return run_at(context_.global.root, command, limit);
    const TemporaryRoot root(context_.global.root / "gpu" / (kColdPrefix + random_hex(6)));
    return run_at(root.path(), command, limit);
  }

 private:
  gpu::ProgramOutput run_at(const std::filesystem::path& root, const std::vector<std::string>& command,
                            std::chrono::seconds limit) {
    std::error_code ignored;
    std::filesystem::remove(stats_, ignored);
    ChildProgram program;
    program.words = words(root, command);
    program.limit = limit;
    program.max_output = gpu::kMaxProbeOutput;
    auto output = output_of(run_child(program, context_.cancel));
    if (output.exit_status == kOwnFailure && !output.timed_out)
      fail<Error>("no session of {}: {}", name(), last_line(output.err));
    read_stats(output);
    return output;
  }

  std::string name() const { return place_.image.empty() ? place_.rootfs.string() : place_.image; }

  std::vector<std::string> words(const std::filesystem::path& root, const std::vector<std::string>& command) const {
    auto words = session_words(context_, root);
    words.insert(words.end(), {"--gpus", place_.gpus, "--stats", stats_.string(), "--volume",
                               probe_ + ":" + kProbeInSession + ":ro", "--runtime", place_.runtime});
    for (const auto& variable : place_.env) words.insert(words.end(), {"--env", variable});
    for (const auto& dir : place_.cdi_dirs) words.insert(words.end(), {"--cdi-spec-dir", dir.string()});
    if (place_.image.empty()) {
      words.insert(words.end(), {"--rootfs", place_.rootfs.string()});
    } else {
      words.insert(words.end(), {"--mode", place_.mode, place_.image});
    }
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }

  // A session that was killed at its limit leaves none: then nobody knows what it fetched.
  void read_stats(gpu::ProgramOutput& output) const {
    if (place_.image.empty()) return;
    const auto bytes = read_file_if_there(stats_, kMaxStatsBytes);
    if (!bytes) return;
    const auto stats = json::parse(as_text(*bytes));
    output.lazy = true;
    output.fetched_bytes = stats.at("fetched_bytes").get<std::uint64_t>();
    output.requests = stats.at("requests").get<std::uint64_t>();
  }

  gpu::StepResult compare_manifest() const {
    const auto text = read_file(place_.manifest, cuda::kMaxManifestBytes);
    const auto wanted = cuda::parse_manifest(as_text(text), place_.manifest.string());
    const ImageContents image(context_, place_.image);
    const auto differences = cuda::compare(wanted, image.cuda_manifest());
    gpu::StepResult result;
    result.step = "manifest";
    result.outcome = differences.empty() ? gpu::Outcome::kOk : gpu::Outcome::kFailed;
    result.detail = differences.empty()
                        ? fmt::format("{} files, the loader's ways to them and the configuration are those of {}",
                                      wanted.files.size(), place_.manifest.string())
                        : fmt::format("{} differences from {}, first: {}", differences.size(), place_.manifest.string(),
                                      differences.front());
    return result;
  }

  const Context& context_;
  GpuPlace place_;
  std::string probe_;
  std::filesystem::path stats_;
};

}  // namespace

std::filesystem::path probe_file(const std::filesystem::path& root) {
  const auto program = embedded_file(gpu_probe_files(), "varve-gpu-probe");
  const auto digest = digest_of(program);
  const auto file = root / "gpu" / ("varve-gpu-probe-" + digest.hex().substr(0, 16));
  const auto there = read_file_if_there(file, program.size() + 1);
  if (there && digest_of(*there) == digest) return file;
  std::filesystem::create_directories(file.parent_path());
  write_file_atomically(file, as_bytes(program), 0755);
  return file;
}

std::string why_no_gpu(const Context& context, const GpuPlace& place) {
  try {
    fuse::find_gpus({.gpus = place.gpus,
                     .devices = {},
                     .cdi_dirs = place.cdi_dirs,
                     .runtime = place.runtime,
                     .root = context.global.root},
                    [](const std::string& text) { log::info("{}", text); });
    return "";
  } catch (const NotFound& error) {
    const auto driver = fuse::installed_driver_version();
    if (!driver.empty())
      fail<Unsupported>("the driver {} is loaded, but sessions cannot have its devices: {}", driver, error.what());
    return error.what();
  }
}

std::unique_ptr<gpu::StepRunner> make_step_runner(const Context& context, const GpuPlace& place) {
  if (place.image.empty() && place.rootfs.empty()) return std::make_unique<ThisMachine>(context);
  return std::make_unique<Sessions>(context, place);
}

std::string cuda_manifest_json(const Context& context, const std::string& image) {
  return cuda::to_json(ImageContents(context, image).cuda_manifest());
}

}  // namespace varve::cli
