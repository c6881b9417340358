#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/file.h"
#include "fuse/runtime.h"
#include "fuse/user_namespace.h"

namespace varve::fuse {
namespace {

constexpr int kGateBytes = 4096;

// A mount as bubblewrap's options say it. The kinds it lacks are either made by its --dev or not needed beside the machine's own /sys.
void add_mount(std::vector<std::string>& words, const SpecMount& mount) {
  const bool read_only = std::find(mount.options.begin(), mount.options.end(), "ro") != mount.options.end();
  if (mount.destination == "/dev") {
    words.insert(words.end(), {"--dev", "/dev"});
  } else if (mount.type == "proc") {
    words.insert(words.end(), {"--proc", mount.destination});
  } else if (mount.type == "mqueue") {
    words.insert(words.end(), {"--mqueue", mount.destination});
  } else if (mount.type == "tmpfs") {
    words.insert(words.end(), {"--perms", "1777", "--tmpfs", mount.destination});
  } else if (mount.type == "sysfs") {
    words.insert(words.end(), {"--ro-bind", "/sys", mount.destination});
  } else if (mount.type == "bind" || mount.type == "none") {
    words.insert(words.end(), {mount.device ? "--dev-bind" : read_only ? "--ro-bind" : "--bind", mount.source, mount.destination});
  }
}

void hide_paths(std::vector<std::string>& words, const SessionSpec& spec) {
  for (const auto& path : spec.masked_paths) {
    if (std::filesystem::is_directory(path)) {
      words.insert(words.end(), {"--tmpfs", path, "--remount-ro", path});
    } else if (std::filesystem::exists(path)) {
      words.insert(words.end(), {"--ro-bind", "/dev/null", path});
    }
  }
  // Root of the machine may write sysctls by their owner alone, without any capability.
  for (const auto& path : spec.readonly_paths) words.insert(words.end(), {"--ro-bind-try", path, path});
}

class Bubblewrap final : public Runtime {
 public:
  Bubblewrap(std::filesystem::path program, bool one_id_mapped) : program_(std::move(program)), one_id_mapped_(one_id_mapped) {}

  std::string name() const override { return "bwrap"; }

  pid_t start(const SessionSpec& spec, const SessionFolder&, const PrepareChild& prepare_child) override {
    make_gate();
    std::array<int, 2> status{};
    if (::pipe2(status.data(), O_CLOEXEC) != 0) fail_errno("make a pipe");
    const UniqueFd status_write(status[1]);
    status_.reset(status[0]);
    ::fcntl(status_.get(), F_SETFL, O_NONBLOCK);
    process_ = start_program(words(spec, status_write.get()), {"PATH=/usr/bin:/bin"}, {gate_read_.get(), status_write.get()}, prepare_child);
    gate_read_.reset();
    return process_;
  }

  // bubblewrap makes its mounts in the order of its options; the last one empties our full pipe, and waits for us to close it.
  pollfd ready_poll() const override { return {.fd = gate_.get(), .events = POLLOUT, .revents = 0}; }
  bool ready() override {
    pollfd gate = ready_poll();
    if (::poll(&gate, 1, 0) != 1 || (gate.revents & POLLOUT) == 0 || (gate.revents & POLLERR) != 0) return false;
    gate_.reset();
    return true;
  }

  pid_t signal_target() override {
    if (init_ == 0) init_ = init_from_status();
    if (init_ == 0) return 0;
    // Its process 1 dies of no signal; the command is that one's only child.
    const auto children = read_file_if_there(fmt::format("/proc/{0}/task/{0}/children", init_), 4096);
    const auto text = children ? as_text(*children) : std::string_view();
    pid_t child = 0;
    std::from_chars(text.data(), text.data() + text.size(), child);
    return child;
  }

  Failure failure(int wait_status) override {
    return {.status = 0, .reason = fmt::format("ended with status {}; its own message is above", shell_status(wait_status))};
  }

 private:
  std::vector<std::string> words(const SessionSpec& spec, int status_fd) const {
    std::vector<std::string> words = {program_.string(), "--bind", spec.rootfs.string(), "/", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
                                      "--hostname", spec.hostname, "--json-status-fd", std::to_string(status_fd), "--cap-drop", "ALL"};
    if (spec.user.uid == 0)
      for (const auto& capability : spec.capabilities) words.insert(words.end(), {"--cap-add", capability});
    if (one_id_mapped_ && spec.user.uid != 0)
      words.insert(words.end(), {"--unshare-user", "--uid", std::to_string(spec.user.uid), "--gid", std::to_string(spec.user.gid)});
    if (spec.own_network) words.emplace_back("--unshare-net");
    if (!spec.terminal) words.emplace_back("--new-session");
    words.emplace_back("--clearenv");
    for (const auto& one : spec.env) {
      const auto equals = one.find('=');
      words.insert(words.end(), {"--setenv", one.substr(0, equals), one.substr(equals + 1)});
    }
    for (const auto& mount : spec.mounts) add_mount(words, mount);
    hide_paths(words, spec);
    words.insert(words.end(), {"--chdir", spec.working_dir, "--file", std::to_string(gate_read_.get()), "/dev/null", "--"});
    words.insert(words.end(), spec.args.begin(), spec.args.end());
    return words;
  }

  void make_gate() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_errno("make a pipe");
    gate_read_.reset(ends[0]);
    gate_.reset(ends[1]);
    ::fcntl(gate_.get(), F_SETFL, O_NONBLOCK);
    if (::fcntl(gate_.get(), F_SETPIPE_SZ, kGateBytes) < 0) fail_errno("size a pipe");
    const std::array<std::byte, kGateBytes> zeros{};
    while (::write(gate_.get(), zeros.data(), zeros.size()) > 0) {
    }
  }

  pid_t init_from_status() {
    std::array<char, 256> text{};
    const auto got = ::read(status_.get(), text.data(), text.size());
    if (got <= 0) return 0;
    const std::string_view read(text.data(), std::size_t(got));
    const auto line = nlohmann::json::parse(read.substr(0, read.find('\n')), nullptr, false);
    return line.is_object() ? pid_t(line.value("child-pid", 0)) : 0;
  }

  std::filesystem::path program_;
  bool one_id_mapped_;
  UniqueFd gate_;
  UniqueFd gate_read_;
  UniqueFd status_;
  pid_t process_ = 0;
  pid_t init_ = 0;
};

}  // namespace

std::unique_ptr<Runtime> make_bubblewrap(const std::filesystem::path& program, bool one_id_mapped) {
  return std::make_unique<Bubblewrap>(program, one_id_mapped);
}

}  // namespace varve::fuse
