#pragma once
// Which system calls a session may make, as container engines by default have it: docs/guide/sessions.md, "What holds a
// session". OCI runtimes get it in the bundle, and what Varve runs itself gets it by libseccomp, whose names and
// operators these are.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace varve::fuse {

enum class SeccompAction {
  kAllow,
  kRefuse,  // EPERM: known, and not for sessions
};

// What an argument of the call must be for a rule to hold.
struct SeccompArgument {
  enum class Is { kEqual, kNotEqual, kMaskedEqual };
  unsigned index = 0;
  Is is = Is::kEqual;
  std::uint64_t value = 0;
  std::uint64_t mask = 0;  // of kMaskedEqual
};

struct SeccompRule {
  SeccompAction action = SeccompAction::kAllow;
  std::vector<std::string_view> names;
  std::optional<SeccompArgument> argument = std::nullopt;
};

// Whatever no rule speaks of ends with ENOSYS: a C library then does without a call that is newer than this list. Rules
// of one call that depend on its argument never hold together.
const std::vector<SeccompRule>& seccomp_rules();
// As the OCI runtime specification names them ("SCMP_ARCH_X86_64"): this machine's, and its 32-bit one.
std::vector<std::string_view> seccomp_architectures();

// The 32-bit numbers other than `excluded`, as arguments of rules that hold for them all. The kernel looks at 32 bits
// of an ioctl's number: to compare all 64 would be to be passed by.
std::vector<SeccompArgument> all_but(unsigned index, const std::vector<std::uint32_t>& excluded);

// The rules for this process and its children, for ever. Asks for CAP_SYS_ADMIN in its user namespace and not for "no
// new privileges", as sudo(8) has its place in a session. Throws std::system_error, Unsupported if the kernel has no
// seccomp.
void install_seccomp_filter();

}  // namespace varve::fuse
