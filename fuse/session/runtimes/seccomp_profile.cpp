#include "fuse/session/runtimes/seccomp_profile.h"

#include <linux/sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace varve::fuse {
namespace {

using Is = SeccompArgument::Is;
using Names = std::vector<std::string_view>;

// Namespaces are for who may administrate them. (CLONE_NEWTIME shares its bit with clone's signal.)
constexpr std::uint64_t kNamespaces =
    CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP;

// A name a line would be too long a list.
// clang-format off
const Names kFiles = {
    "access", "chdir", "chmod", "chown", "chown32", "chroot", "close", "close_range", "copy_file_range", "creat",
    "dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fadvise64_64", "arm_fadvise64_64", "fallocate",
    "fanotify_mark", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchown32", "fchownat", "fcntl", "fcntl64",
    "fdatasync", "fgetxattr", "file_getattr", "file_setattr", "flistxattr", "flock", "fremovexattr", "fsetxattr",
    "fstat", "fstat64", "fstatat64", "fstatfs", "fstatfs64", "fsync", "ftruncate", "ftruncate64", "futimesat",
    "getcwd", "getdents", "getdents64", "getxattr", "getxattrat", "inotify_add_watch", "inotify_init", "inotify_init1",
    "inotify_rm_watch", "lchown", "lchown32", "lgetxattr", "link", "linkat", "listmount", "listxattr", "listxattrat",
    "llistxattr", "_llseek", "lremovexattr", "lseek", "lsetxattr", "lstat", "lstat64", "mkdir", "mkdirat", "mknod",
    "mknodat", "name_to_handle_at", "newfstatat", "open", "openat", "openat2", "pipe", "pipe2", "pread64", "preadv",
    "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv",
    "removexattr", "removexattrat", "rename", "renameat", "renameat2", "rmdir", "sendfile", "sendfile64", "setxattr",
    "setxattrat", "splice", "stat", "stat64", "statfs", "statfs64", "statmount", "statx", "symlink", "symlinkat",
    "sync", "sync_file_range", "sync_file_range2", "arm_sync_file_range", "syncfs", "tee", "truncate", "truncate64",
    "umask", "unlink", "unlinkat", "utime", "utimensat", "utimensat_time64", "utimes", "vmsplice", "write", "writev"};

const Names kWaiting = {
    "_newselect", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait", "epoll_pwait2",
    "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents",
    "io_pgetevents_time64", "io_setup", "io_submit", "pause", "poll", "ppoll", "ppoll_time64", "pselect6",
    "pselect6_time64", "select", "signalfd", "signalfd4"};

// Memory policies, move_pages and migrate_pages too, which container engines leave to CAP_SYS_NICE: numactl, NCCL and
// Python's data loaders place their buffers with them, and they reach no further than the caller's own processes.
const Names kMemory = {
    "brk", "cachestat", "get_mempolicy", "madvise", "map_shadow_stack", "mbind", "membarrier", "memfd_create",
    "memfd_secret", "migrate_pages", "mincore", "mlock", "mlock2", "mlockall", "mmap", "mmap2", "move_pages",
    "mprotect", "mremap", "mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free",
    "pkey_mprotect", "process_madvise", "process_mrelease", "remap_file_pages", "set_mempolicy",
    "set_mempolicy_home_node"};

// Those that look into other processes (ptrace, process_vm_readv, kcmp, pidfd_getfd) are judged by the kernel call by
// call, as ptrace is. Debuggers live by them, and PyTorch hands device memory on with pidfd_getfd.
const Names kProcesses = {
    "alarm", "arch_prctl", "breakpoint", "cacheflush", "capget", "capset", "execve", "execveat", "exit", "exit_group",
    "fork", "futex", "futex_requeue", "futex_time64", "futex_wait", "futex_waitv", "futex_wake", "get_robust_list",
    "get_thread_area", "getcpu", "getegid", "getegid32", "geteuid", "geteuid32", "getgid", "getgid32", "getgroups",
    "getgroups32", "getitimer", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid",
    "getresgid32", "getresuid", "getresuid32", "getrlimit", "getrusage", "getsid", "gettid", "getuid", "getuid32",
    "ioprio_get", "ioprio_set", "kcmp", "kill", "landlock_add_rule", "landlock_create_ruleset",
    "landlock_restrict_self", "lsm_get_self_attr", "lsm_list_modules", "modify_ldt", "nice", "pidfd_getfd",
    "pidfd_open", "pidfd_send_signal", "prctl", "prlimit64", "process_vm_readv", "process_vm_writev", "ptrace",
    "restart_syscall", "riscv_hwprobe", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo",
    "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_sigtimedwait_time64", "rt_tgsigqueueinfo",
    "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
    "sched_getscheduler", "sched_rr_get_interval", "sched_rr_get_interval_time64", "sched_setaffinity",
    "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "set_robust_list",
    "set_thread_area", "set_tid_address", "set_tls", "setfsgid", "setfsgid32", "setfsuid", "setfsuid32", "setgid",
    "setgid32", "setgroups", "setgroups32", "setitimer", "setpgid", "setpriority", "setregid", "setregid32",
    "setresgid", "setresgid32", "setresuid", "setresuid32", "setreuid", "setreuid32", "setrlimit", "setsid", "setuid",
    "setuid32", "sigaction", "sigaltstack", "signal", "sigpending", "sigprocmask", "sigreturn", "sigsuspend",
    "sysinfo", "tgkill", "times", "tkill", "ugetrlimit", "uname", "uretprobe", "vfork", "wait4", "waitid", "waitpid"};

const Names kTime = {
    "adjtimex", "clock_adjtime", "clock_adjtime64", "clock_getres", "clock_getres_time64", "clock_gettime",
    "clock_gettime64", "clock_nanosleep", "clock_nanosleep_time64", "gettimeofday", "nanosleep", "time",
    "timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_gettime64", "timer_settime",
    "timer_settime64", "timerfd_create", "timerfd_gettime", "timerfd_gettime64", "timerfd_settime",
        "timerfd_settime64"};

const Names kTalking = {
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "ipc", "listen",
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedreceive_time64", "mq_timedsend",
    "mq_timedsend_time64", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd", "recv", "recvfrom", "recvmmsg",
    "recvmmsg_time64", "recvmsg", "semctl", "semget", "semop", "semtimedop", "semtimedop_time64", "send", "sendmmsg",
    "sendmsg", "sendto", "setsockopt", "shmat", "shmctl", "shmdt", "shmget", "shutdown", "socketcall", "socketpair"};

// The machine's own affairs. io_uring and clone3 are not even named: with ENOSYS programs do as before there was such a
// thing, and the arguments of clone3 lie where no filter can look.
const Names kRefused = {
    "_sysctl", "acct", "add_key", "bpf", "clock_settime", "clock_settime64", "create_module", "delete_module",
    "fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "get_kernel_syms", "init_module",
    "ioperm", "iopl", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mount", "mount_setattr",
    "move_mount", "nfsservctl", "open_by_handle_at", "open_tree", "open_tree_attr", "perf_event_open", "pivot_root",
    "query_module", "quotactl", "quotactl_fd", "reboot", "request_key", "setdomainname", "sethostname", "setns",
    "settimeofday", "stime", "swapoff", "swapon", "sysfs", "syslog", "umount", "umount2", "uselib", "userfaultfd",
    "ustat", "vhangup", "vm86", "vm86old"};

// clang-format on

std::vector<SeccompRule> make_rules() {
  std::vector<SeccompRule> rules;
  for (const auto& names : {kFiles, kWaiting, kMemory, kProcesses, kTime, kTalking})
    rules.push_back({SeccompAction::kAllow, names});
  rules.push_back({SeccompAction::kRefuse, kRefused});
  const SeccompArgument no_namespace{.index = 0, .is = Is::kMaskedEqual, .value = 0, .mask = kNamespaces};
  rules.push_back({SeccompAction::kAllow, {"clone", "unshare"}, no_namespace});
  for (std::uint64_t bit = 1; bit <= kNamespaces; bit <<= 1) {
    if ((kNamespaces & bit) == 0) continue;
    // One bit a rule, and none above it, so that only one holds.
    const auto above = kNamespaces & ~(bit | (bit - 1));
    const SeccompArgument one{.index = 0, .is = Is::kMaskedEqual, .value = bit, .mask = above | bit};
    rules.push_back({SeccompAction::kRefuse, {"clone", "unshare"}, one});
  }
  // To the machine's hypervisor there is no network namespace.
  rules.push_back(
      {SeccompAction::kAllow, {"socket"}, SeccompArgument{.index = 0, .is = Is::kNotEqual, .value = AF_VSOCK}});
  // Linux, 32-bit Linux, UNAME26, both, and the question which it is.
  for (const std::uint64_t persona : {0x0u, 0x8u, 0x20000u, 0x20008u, 0xffffffffu})
    rules.push_back(
        {SeccompAction::kAllow, {"personality"}, SeccompArgument{.index = 0, .is = Is::kEqual, .value = persona}});
  // Words put into a terminal as if typed: what reads from it next, the caller's shell say, would do them.
  for (const auto& number : all_but(1, {TIOCSTI, TIOCLINUX}))
    rules.push_back({SeccompAction::kAllow, {"ioctl"}, number});
  for (const std::uint64_t number : {TIOCSTI, TIOCLINUX})
    rules.push_back({SeccompAction::kRefuse,
                     {"ioctl"},
                     SeccompArgument{.index = 1, .is = Is::kMaskedEqual, .value = number, .mask = 0xffffffff}});
  return rules;
}

// Numbers that begin as `prefix` does down to `bit`, exclusive: in halves, until one holds nothing that is excluded.
void add_free_ranges(unsigned index, std::uint32_t prefix, int bit, const std::vector<std::uint32_t>& excluded,
                     std::vector<SeccompArgument>& found) {
  const std::uint64_t mask = ~((std::uint64_t(1) << bit) - 1) & 0xffffffff;
  bool is_free = true;
  for (const auto number : excluded) is_free = is_free && (number & mask) != prefix;
  if (is_free) return found.push_back({.index = index, .is = Is::kMaskedEqual, .value = prefix, .mask = mask});
  if (bit == 0) return;
  add_free_ranges(index, prefix, bit - 1, excluded, found);
  add_free_ranges(index, prefix | std::uint32_t(1) << (bit - 1), bit - 1, excluded, found);
}

}  // namespace

const std::vector<SeccompRule>& seccomp_rules() {
  static const auto rules = make_rules();
  return rules;
}

std::vector<std::string_view> seccomp_architectures() {
#if defined(__x86_64__)
  return {"SCMP_ARCH_X86_64", "SCMP_ARCH_X86"};
#elif defined(__aarch64__)
  return {"SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"};
#else
#error "seccomp_architectures: name this architecture and its 32-bit one"
#endif
}

std::vector<SeccompArgument> all_but(unsigned index, const std::vector<std::uint32_t>& excluded) {
  std::vector<SeccompArgument> found;
  add_free_ranges(index, 0, 32, excluded, found);
  return found;
}

}  // namespace varve::fuse
