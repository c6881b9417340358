#include "gpu/places.h"

#include <algorithm>
#include <optional>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/process/child_process.h"
#include "core/base/random.h"
#include "core/base/text/json_document.h"
#include "core/base/text/strings.h"
#include "gpu/probe_output.h"

namespace varve::gpu {
namespace {

constexpr int kOwnFailure = 125;  // of `varve run`, before the command
constexpr std::uint64_t kMaxStatsBytes = 1u << 20;
constexpr std::size_t kMaxFolders = 100;
constexpr std::size_t kMaxFolderName = 1000;
constexpr std::chrono::seconds kPythonFoldersLimit{300};
// The folders that torch looks for nvidia/*/lib in.
constexpr std::string_view kFoldersScript =
    "import json, sys\nprint('varve-gpu-probe: ' + json.dumps({'folders': [f for f in sys.path if "
    "f.startswith('/') and f.endswith('-packages')]}))\n";

std::vector<std::string> parse_folders(std::string_view output) {
  std::vector<std::string> folders;
  const auto mark = std::string(kProbeMark) + " ";
  while (!output.empty()) {
    const auto line = output.substr(0, output.find('\n'));
    output.remove_prefix(std::min(line.size() + 1, output.size()));
    if (!line.starts_with(mark)) continue;
    const auto answer = JsonValue::parse(line.substr(mark.size()), "the folders of Python", {.depth = 4});
    for (auto& folder : answer.maybe("folders").texts())
      if (folders.size() < kMaxFolders && folder.starts_with('/') && folder.size() <= kMaxFolderName)
        folders.push_back(std::move(folder));
  }
  return folders;
}

// What all places share: the probe is told where the Python of the place has its packages.
class Place : public StepRunner {
 public:
  Place(std::string probe, const CancelFlag& cancel) : cancel_(cancel), probe_(std::move(probe)) {}

  ProgramOutput probe(const std::vector<std::string>& words, Store store, std::chrono::seconds limit) override {
    std::vector<std::string> command = {probe_};
    command.insert(command.end(), words.begin(), words.end());
    // A machine without a driver needs no Python to say so.
    if (words.front() != "driver") {
      if (!folders_) folders_ = find_folders();
      for (const auto& folder : *folders_) command.insert(command.end(), {"--library-dir", folder});
    }
    return run(command, store, limit);
  }

  ProgramOutput python(std::string_view script, const std::vector<std::string>& words, Store store,
                       std::chrono::seconds limit) override {
    std::vector<std::string> command = {"python3", "-c", std::string(script)};
    command.insert(command.end(), words.begin(), words.end());
    return run(command, store, limit);
  }

  StepResult manifest() override {
    StepResult result;
    result.step = "manifest";
    result.outcome = Outcome::kSkipped;
    result.detail = "nothing says what CUDA files there should be: --manifest FILE, which --write-manifest FILE makes";
    return result;
  }

 protected:
  virtual ProgramOutput run(const std::vector<std::string>& command, Store store, std::chrono::seconds limit) = 0;

  const CancelFlag& cancel_;

 private:
  std::vector<std::string> find_folders() {
    const auto output = python(kFoldersScript, {}, Store::kWarm, kPythonFoldersLimit);
    if (output.exit_status == 0 && !output.timed_out) return parse_folders(output.out);
    log::info("the probe looks for wheels in the usual folders: python3 does not say where its own are: {}",
              last_line(output.err));
    return {};
  }

  std::string probe_;
  std::optional<std::vector<std::string>> folders_;
};

ProgramOutput output_of(ChildResult child) {
  ProgramOutput output;
  output.exit_status = child.exit_status;
  output.timed_out = child.timed_out;
  output.out = std::move(child.out);
  output.err = std::move(child.err);
  output.seconds = child.seconds;
  return output;
}

class ThisMachine final : public Place {
 public:
  using Place::Place;

 protected:
  ProgramOutput run(const std::vector<std::string>& command, Store, std::chrono::seconds limit) override {
    ChildProgram program;
    program.words = command;
    program.limit = limit;
    program.max_output = kMaxProbeOutput;
    program.end_descendants = true;
    return output_of(run_child(program, cancel_));
  }
};

const std::string kColdPrefix = "cold-";

// The state of a cold step: a folder that goes with all that is in it, after the daemon that serves it.
class TemporaryRoot {
 public:
  TemporaryRoot(std::filesystem::path dir, const SessionPlace& place) : dir_(std::move(dir)), place_(place) {
    std::filesystem::create_directories(dir_);
  }
  ~TemporaryRoot() {
    try {
      place_.end_store(dir_);
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
  const SessionPlace& place_;
};

class Sessions final : public Place {
 public:
  Sessions(SessionPlace place, const CancelFlag& cancel)
      : Place(std::string(kProbeInSession), cancel),
        place_(std::move(place)),
        folder_(place_.root / "gpu"),
        stats_(folder_ / "stats.json") {
    std::filesystem::create_directories(folder_);
    std::vector<std::filesystem::path> left;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      if (entry.path().filename().string().starts_with(kColdPrefix)) left.push_back(entry.path());
    for (const auto& dir : left) TemporaryRoot gone(dir, place_);
  }
  ~Sessions() override {
    std::error_code ignored;
    std::filesystem::remove(stats_, ignored);
  }

  StepResult manifest() override {
    if (!place_.manifest) return Place::manifest();
    const Stopwatch watch;
    auto result = place_.manifest();
    result.seconds = watch.seconds();
    return result;
  }

 protected:
  ProgramOutput run(const std::vector<std::string>& command, Store store, std::chrono::seconds limit) override {
    if (store == Store::kWarm) return run_at(place_.root, command, limit);
    const TemporaryRoot root(folder_ / (kColdPrefix + random_hex(6)), place_);
    return run_at(root.path(), command, limit);
  }

 private:
  ProgramOutput run_at(const std::filesystem::path& root, const std::vector<std::string>& command,
                       std::chrono::seconds limit) {
    std::error_code ignored;
    std::filesystem::remove(stats_, ignored);
    ChildProgram program;
    program.words = place_.session(root, stats_);
    program.words.insert(program.words.end(), command.begin(), command.end());
    program.limit = limit;
    program.max_output = kMaxProbeOutput;
    auto output = output_of(run_child(program, cancel_));
    if (output.exit_status == kOwnFailure && !output.timed_out)
      fail<Error>("no session of {}: {}", place_.name, last_line(output.err));
    read_stats(output);
    return output;
  }

  // A session that was killed at its limit leaves none: then nobody knows what it fetched.
  void read_stats(ProgramOutput& output) const {
    if (!place_.lazy) return;
    const auto bytes = read_file_if_there(stats_, kMaxStatsBytes);
    if (!bytes) return;
    const auto stats = JsonValue::parse(*bytes, stats_.string());
    output.lazy = true;
    output.fetched_bytes = stats["fetched_bytes"].number();
    output.requests = stats["requests"].number();
  }

  SessionPlace place_;
  std::filesystem::path folder_, stats_;
};

}  // namespace

std::unique_ptr<StepRunner> run_on_this_machine(const std::filesystem::path& probe, const CancelFlag& cancel) {
  return std::make_unique<ThisMachine>(probe.string(), cancel);
}

std::unique_ptr<StepRunner> run_in_sessions(SessionPlace place, const CancelFlag& cancel) {
  return std::make_unique<Sessions>(std::move(place), cancel);
}

}  // namespace varve::gpu
