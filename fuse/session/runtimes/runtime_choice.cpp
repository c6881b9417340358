#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/process/boot_id.h"
#include "core/base/process/inherited.h"
#include "core/base/text/json_document.h"
#include "fuse/session/runtimes/runtime.h"

namespace varve::fuse {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxMemoryBytes = 1 << 20;
// A runtime that failed may have been mended since, by what nobody sees here.
constexpr std::chrono::minutes kFailureLives{10};

const std::vector<std::string> kKnown = {"runc", "crun", "none", "nvidia"};

std::unique_ptr<Runtime> make_runtime(const std::string& name, const std::filesystem::path& program,
                                      const UserIds& ids) {
  if (name == "runc") return make_runc(program);
  if (name == "nvidia") return make_nvidia_runtime(program);
  if (name == "crun") return make_crun(program);
  return make_direct_runtime(!ids.is_root && !ids.needs_helpers);
}

// What a trial's answer holds for: this program, this user, this start of the machine.
std::string circumstances(const std::filesystem::path& program, const UserIds& ids) {
  struct stat status {};
  if (::stat(program.c_str(), &status) != 0) fail_errno("{}", program.string());
  return fmt::format("{} {} {}.{:09} user {} {} boot {}", program.string(), status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec, ids.is_root ? 0 : ids.uids.outside(0), ids.uids.to_map_file(), boot_id());
}

// The answers of trials by runtime: {"runc": {"for": circumstances, "why_not": "", "at": seconds}}.
class TrialMemory {
 public:
  explicit TrialMemory(std::filesystem::path file) : file_(std::move(file)), answers_(json::object()) {
    try {
      if (const auto bytes = read_file_if_there(file_, kMaxMemoryBytes))
        answers_ = JsonValue::parse(*bytes, file_.string(), {.bytes = kMaxMemoryBytes}).raw();
    } catch (const std::exception& error) {
      log::debug("{}", error.what());
    }
    if (!answers_.is_object()) answers_ = json::object();
  }

  // Absent if there is none that still holds; "" = it works.
  std::optional<std::string> find(const std::string& name, const std::string& circumstances) const {
    try {
      const auto answer = JsonValue(answers_, file_.string()).maybe(name);
      if (!answer || answer["for"].text() != circumstances) return std::nullopt;
      auto why_not = answer["why_not"].text();
      const auto age = std::chrono::seconds(now_seconds() - answer["at"].number<std::int64_t>(0));
      if (!why_not.empty() && (age < age.zero() || age > kFailureLives)) return std::nullopt;
      return why_not;
    } catch (const CorruptData&) {
      return std::nullopt;
    }
  }

  // Only a memory: that it cannot be written costs the next session a trial.
  void keep(const std::string& name, const std::string& circumstances, const std::string& why_not) {
    answers_[name] = {{"for", circumstances}, {"why_not", why_not}, {"at", now_seconds()}};
    try {
      write_file_atomically(file_, as_bytes(answers_.dump(1, ' ', false, json::error_handler_t::replace)), 0600);
    } catch (const std::exception& error) {
      log::debug("{}", error.what());
    }
  }

 private:
  std::filesystem::path file_;
  json answers_;
};

constexpr auto kTried = {"runc", "crun"};  // in that order

// With one id no runtime could become an image's user.
bool goes_without(const RuntimeWish& wish) {
  return wish.wanted == "auto" && !wish.ids.is_root && !wish.ids.needs_helpers;
}

std::unique_ptr<Runtime> choose_by_trials(const RuntimeWish& wish, const std::function<void(const std::string&)>& say) {
  TrialMemory memory(wish.memory);
  std::string reasons;
  const auto leave_out = [&](const std::string& name, const std::string& why_not) {
    say(fmt::format("not using {}: {}", name, why_not));
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", name, why_not);
  };
  for (const std::string name : kTried) {
    const auto program = program_of_runtime(name);
    if (program.empty()) {
      leave_out(name, "it is not installed");
      continue;
    }
    const auto now = circumstances(program, wish.ids);
    auto why_not = memory.find(name, now);
    if (!why_not) {
      why_not = wish.trial(*make_runtime(name, program, wish.ids));
      memory.keep(name, now, *why_not);
    }
    if (why_not->empty()) return make_runtime(name, program, wish.ids);
    leave_out(name, *why_not);
  }
  if (!wish.ids.is_root) return make_runtime("none", {}, wish.ids);
  fail<Unsupported>(
      "this machine has no container runtime that works: {} (--runtime none does without one; as root that is not "
      "chosen by itself)",
      reasons);
}

}  // namespace

std::filesystem::path program_of_runtime(const std::string& name) {
  if (std::ranges::find(kKnown, name) == kKnown.end() || name == "none") return {};
  return find_program(name == "nvidia" ? "nvidia-container-runtime" : name);
}

void check_runtime_name(const std::string& wanted) {
  if (wanted != "auto" && std::ranges::find(kKnown, wanted) == kKnown.end())
    fail<UsageError>("the runtime '{}' is not known: auto, runc, crun, none and nvidia are", wanted);
}

std::unique_ptr<Runtime> choose_runtime(const RuntimeWish& wish, const std::function<void(const std::string&)>& say) {
  check_runtime_name(wish.wanted);
  if (goes_without(wish)) {
    say("not using runc or crun: they cannot become an image's user with one id (no range in /etc/subuid)");
    return make_runtime("none", {}, wish.ids);
  }
  if (wish.wanted == "auto") return choose_by_trials(wish, say);
  const auto program = program_of_runtime(wish.wanted);
  if (wish.wanted != "none" && program.empty())
    fail<Unsupported>("{} cannot run this session: it is not installed", wish.wanted);
  if (wish.wanted == "nvidia" && !wish.ids.is_root) fail<Unsupported>("nvidia cannot run this session: it needs root");
  return make_runtime(wish.wanted, program, wish.ids);
}

bool needs_trial(const RuntimeWish& wish) {
  if (wish.wanted != "auto" || goes_without(wish)) return false;
  const TrialMemory memory(wish.memory);
  for (const std::string name : kTried) {
    const auto program = program_of_runtime(name);
    if (program.empty()) continue;
    const auto why_not = memory.find(name, circumstances(program, wish.ids));
    if (!why_not || why_not->empty()) return !why_not;
  }
  return false;
}

std::filesystem::path trial_memory(const std::filesystem::path& root) { return root / "sessions" / ".runtimes"; }

void forget_trials(const std::filesystem::path& memory) noexcept { ::unlink(memory.c_str()); }

void check_user(const Runtime& runtime, const ImageUser& user, const UserIds& ids) {
  if (runtime.name() == "none" || (ids.uids.maps(user.uid) && ids.gids.maps(user.gid))) return;
  fail<Unsupported>(
      "{} cannot run this session: the image's user {}:{} is not mapped here (no range in /etc/subuid and /etc/subgid "
      "that reaches "
      "it); choose another with --user{}",
      runtime.name(), user.uid, user.gid, ids.needs_helpers ? "" : ", or --runtime none");
}

pid_t start_program(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                    const std::vector<int>& keep_fds, const PrepareChild& prepare_child) {
  // Made before the fork, so that the child only makes system calls.
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  for (const auto& one : environment) envp.push_back(const_cast<char*>(one.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const auto child = ::fork();
  if (child < 0) fail_errno("start {}", words.front());
  if (child > 0) return child;
  prepare_child();
  close_at_exec_but(keep_fds);
  ::execve(argv[0], argv.data(), envp.data());
  ::_exit(errno == ENOENT ? kNotFound : kNotExecutable);
}

}  // namespace varve::fuse
