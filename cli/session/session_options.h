#pragma once
// What the commands that run a session of an image have in common: their options, and the request made of them.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "fuse/control/control_client.h"
#include "fuse/session/gpu_access.h"
#include "fuse/session/gpus.h"
#include "fuse/session/session.h"

namespace varve::cli {

// Those of a GPU, and of other devices that are described as theirs are (CDI).
struct DeviceOptions {
  std::string gpus = "none";
  std::vector<std::string> devices;
  std::vector<std::filesystem::path> cdi_dirs = fuse::CdiRegistry::default_dirs();

  bool has_gpu() const;
};

struct SessionOptions : DeviceOptions {
  std::vector<std::string> volumes;
  std::vector<std::string> env;
  std::vector<std::filesystem::path> env_files;
  std::string working_dir;
  std::string user;
  std::optional<std::string> entrypoint;
  std::string mode = "auto";
  std::string runtime = "auto";
  std::string network = "host";
  std::string userns = "host";
  std::string userns_ids = std::string(fuse::kUsualOwnIds);
  std::vector<std::string> tmpfs;
  std::string hostname;
  std::uint64_t shm_bytes = 0;
  bool read_only = false;
  bool tty = false;  // fails without a terminal on standard input
  fuse::Limits limits;
  std::string limits_hold = "enforce";
};

void add_device_options(CLI::App& command, DeviceOptions& options);
// As words of a command that has them.
std::vector<std::string> words_of(const DeviceOptions& options);
// Throws what makes it impossible that a session has them.
fuse::GpuAccess find_devices(const Context& context, const DeviceOptions& options, const std::string& runtime);

// `options` must outlive the command. `volume` is the option's name: in `run` it has a letter too.
void add_session_options(CLI::App& command, SessionOptions& options, const std::string& volume = "--volume");
// -i and -t, for fingers that know them: standard input is always passed on, and a terminal too if there is one.
void add_terminal_options(CLI::App& command, bool& tty);
// Throws UsageError if a terminal is asked for and standard input is none.
void check_terminal(bool tty);
// Those that `run` has besides.
void add_container_options(CLI::App& command, SessionOptions& options);
// Throws UsageError for values that no session can have, before anything is looked for.
void check(const SessionOptions& options);

// To be called first by what begins a session, or enters one: where its command may be executed by this program itself,
// goes on as one whose file no session changes (own_program.h).
void guard_program(const Context& context, const std::string& runtime);

// The words after "--" are the session's command. Throws what makes a session impossible: an option that cannot be, a
// GPU that is not there.
fuse::SessionRequest make_session_request(const Context& context, const SessionOptions& options,
                                          const fuse::AcquiredImage& acquired, const std::string& image);
// The same over a tree that lies unpacked in a folder. It has no config.
fuse::SessionRequest make_session_request(const Context& context, const SessionOptions& options,
                                          const std::filesystem::path& tree);

}  // namespace varve::cli
