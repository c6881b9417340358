#pragma once
// What a session's command finds: the image config and the user's wishes become one specification, which runtimes get
// as an OCI bundle's config.json (runtime-spec config.md, config-linux.md) or carry out themselves.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/oci/manifest.h"
#include "fuse/mount/user_ids.h"
#include "fuse/session/image_user.h"
#include "fuse/session/limits.h"

namespace varve::fuse {

// SRC:DST[:OPTIONS]; options are "ro" and "rw", separated by commas.
struct Volume {
  std::filesystem::path source;  // absolute, exists
  std::string destination;       // absolute, in the session
  bool read_only = false;
  bool operator==(const Volume&) const = default;

  // Throws UsageError saying which part is wrong, also when the source does not exist.
  static Volume parse(std::string_view text);
  std::string to_string() const;  // with the full path of the source
};

// A file system in memory. DST[:OPTIONS]; options are size=BYTES (also 64m, 1g, or 50% of the memory), mode=OCTAL,
// "ro", "rw", "exec", "noexec", separated by commas.
struct Tmpfs {
  std::string destination;           // absolute, in the session
  std::vector<std::string> options;  // as mount(8) takes them
  bool operator==(const Tmpfs&) const = default;

  // Throws UsageError saying which part is wrong.
  static Tmpfs parse(std::string_view text);
};

// What the user asks for beyond the image's config; empty means "as the image says".
struct CommandOptions {
  std::vector<std::string> command = {};       // replaces the image's Cmd
  std::optional<std::string> entrypoint = {};  // replaces its Entrypoint and drops its Cmd = {}; "" = none
  std::vector<std::string> env = {};           // "NAME=value", or "NAME" to hand on the own value
  std::string working_dir = {};
  std::string user = {};
  std::vector<Volume> volumes = {};
  bool network = true;  // the machine's; false: only a loopback of its own
  std::vector<Tmpfs> tmpfs = {};
  std::string hostname = {};    // "" = the machine's
  std::uint64_t shm_bytes = 0;  // of /dev/shm; 0 = half of the memory
  bool read_only = false;       // the root; mounts stay as they are
  Limits limits = {};
};

struct SpecMount {
  std::string destination;
  std::string type;  // "bind", "proc", "tmpfs", ...
  std::string source;
  std::vector<std::string> options;
  bool file = false;    // a bind of something that is no folder
  bool device = false;  // and a device, which is to work
  bool wish = false;    // the user's: its place may lie behind links of the image
};

// What the device cgroup allows.
struct DeviceRule {
  char type = 'c';  // or 'b'
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::string access;  // letters of "rwm"
};

// All that a runtime needs to know.
struct SessionSpec {
  std::string id;
  std::filesystem::path rootfs;
  std::vector<std::string> args;  // not empty
  std::vector<std::string> env;   // each name once
  std::string working_dir;        // absolute
  ImageUser user;
  bool terminal = false;
  std::vector<SpecMount> mounts;
  std::vector<DeviceRule> device_rules;
  std::vector<std::string> capabilities;  // "CAP_CHOWN"; the bounding set
  std::vector<std::string> masked_paths;
  std::vector<std::string> readonly_paths;
  std::string hostname;
  bool read_only = false;     // the root
  Limits limits;              // that will hold
  std::string pid_namespace;  // path of one to join; "" = a new one
  UserIds own_ids;            // of the session's own user namespace, made by root (session_ids.h); is_root: it has none
  std::string user_namespace;  // path of it, to join
  std::string cgroups_path;    // "" = the runtime's choice
  std::string ready_fifo;      // gets a byte when the command is about to be executed; "" = nobody asks
  bool in_user_namespace = false;
  bool own_network = false;  // a network namespace with nothing but loopback
};

// The words to execute, by the rules of the image spec (config.md "Entrypoint", "Cmd"). Throws UsageError if there are
// none.
std::vector<std::string> command_line(const oci::ImageConfig& config, const CommandOptions& options);

// The working directory, by the same: absolute, not yet looked for.
std::string absolute_working_dir(const oci::ImageConfig& config, const CommandOptions& options);

// The environment: defaults, then the image's, then the user's; a later value replaces an earlier one in its place.
// `own_value` looks up what
// `--env NAME` hands on; without a value there the name is left out. Throws UsageError for a name that is none.
struct EnvironmentDefaults {
  std::string home;
  std::string hostname;
  std::string term;
};
std::vector<std::string> session_environment(const oci::ImageConfig& config, const CommandOptions& options,
                                             const EnvironmentDefaults& defaults,
                                             const std::vector<std::string>& own_environment);

// NAME=value of both, each name once; what `more` says of one counts.
std::vector<std::string> with_variables(const std::vector<std::string>& environment,
                                        const std::vector<std::string>& more);

// The mounts that every session has, before the volumes. In a user namespace /sys is the machine's, since a new one
// needs a network of one's own.
std::vector<SpecMount> usual_mounts(bool in_user_namespace, const IdMap& gids);
SpecMount bind_mount(const std::filesystem::path& source, const std::string& destination, bool read_only, bool file);

// Throws UsageError for what is no name of a machine.
void check_hostname(const std::string& name);

// NAME=value and NAME lines of a file as `docker run --env-file` reads it: empty lines and those that begin with '#'
// are left out, and nothing is unquoted. Throws UsageError naming `file` and the line.
std::vector<std::string> parse_env_file(std::string_view text, const std::string& file);

// Docker's default capabilities, without those that `bounding_set` (bit N = capability N) lacks.
std::vector<std::string> default_capabilities(std::uint64_t bounding_set);
std::vector<std::string> default_masked_paths();
std::vector<std::string> default_readonly_paths();

// config.json of the bundle. Throws UsageError for words that are not UTF-8.
std::string to_config_json(const SessionSpec& spec);

// The part of a spec that says what a process is: args, env, working_dir, user (without a home), terminal,
// capabilities. Of a further process of a session it is the whole of what `runc exec --process` reads.
std::string to_process_json(const SessionSpec& spec);
// That part out of a config.json. Throws CorruptData.
SessionSpec read_process(ByteView config_json, const std::string& name);

}  // namespace varve::fuse
