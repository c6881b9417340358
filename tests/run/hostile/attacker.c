// What runs inside each hostile image, linked statically so that nothing of the image has a say. It tries to reach the
// machine in every way that the corpus has a canary for. Each success is a line "ESCAPED ..."; the last line is
// "SESSION WORKS". What it is told comes by variables PROBE_...; it never writes anything to the machine but the word
// OWNED into canaries, and values back that it has just read.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/keyctl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET "varve-canary:"  // every canary's content begins so
enum { kMaxUp = 12, kMaxFd = 256 };

static const char* canary =
    "";  // the machine's path of a file that everybody may read and write, without the first "/"

static void escaped(const char* how, const char* path) {
  printf("ESCAPED %s %.300s\n", how, path);
  fflush(stdout);
}

static int reads_secret(int fd) {
  char text[4096];
  const ssize_t got = read(fd, text, sizeof text);
  return got > 0 && memmem(text, (size_t)got, SECRET, strlen(SECRET)) != NULL;
}

static void try_file(const char* how, const char* path) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  if (reads_secret(fd)) {
    escaped(how, path);
    const int out = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (out >= 0 && write(out, "OWNED", 5) == 5) escaped("and wrote to it:", path);
    if (out >= 0) close(out);
  }
  close(fd);
}

// The canary as seen from a folder that may be the machine's. `how` says what led there.
static void try_folder(const char* how, const char* folder) {
  char path[8192];
  char up[4 * kMaxUp + 1] = "";
  for (int depth = 0; depth <= kMaxUp; ++depth) {
    if (snprintf(path, sizeof path, "%s/%s%s", folder, up, canary) < (int)sizeof path) try_file(how, path);
    strcat(up, "../");
  }
}

static void try_descriptors(void) {
  char path[64], target[256];
  for (int fd = 0; fd < kMaxFd; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) continue;
    for (int way = 0; way < 2; ++way) {
      snprintf(path, sizeof path, way ? "/dev/fd/%d" : "/proc/self/fd/%d", fd);
      try_folder("a descriptor", path);
    }
    if (fd < 3) continue;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    printf("(descriptor %d)\n", fd);
    escaped("has an open descriptor:", target);
  }
}

static void try_processes(void) {
  static const char* const roots[] = {"/proc", "/foo"};
  char path[512];
  for (int i = 0; i < 2; ++i) {
    DIR* listing = opendir(roots[i]);
    for (struct dirent* one; listing != NULL && (one = readdir(listing)) != NULL;) {
      const int pid = atoi(one->d_name);
      if (pid <= 0) continue;
      static const char* const links[] = {"root", "cwd"};
      for (int j = 0; j < 2; ++j) {
        snprintf(path, sizeof path, "%s/%d/%s", roots[i], pid, links[j]);
        try_folder("a process's folder", path);
      }
      snprintf(path, sizeof path, "%s/%d/environ", roots[i], pid);
      try_file("another's variables", path);
      if (pid == getpid() || i != 0) continue;
      snprintf(path, sizeof path, "/proc/%d/exe", pid);
      if (open(path, O_RDONLY | O_CLOEXEC) >= 0) escaped("opened the program", path);
      snprintf(path, sizeof path, "/proc/%d/mem", pid);
      if (open(path, O_RDWR | O_CLOEXEC) >= 0) escaped("opened the memory", path);
      snprintf(path, sizeof path, "%d", pid);
      if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0) escaped("traces process", path);
    }
    if (listing != NULL) closedir(listing);
  }
}

static void try_write_back(const char* path) {
  char value[4096];
  const int in = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t got = in < 0 ? -1 : read(in, value, sizeof value);
  const int out = open(path, O_WRONLY | O_CLOEXEC);
  if (got >= 0 && out >= 0 && write(out, value, (size_t)got) == got) escaped("wrote a setting of the machine:", path);
  if (in >= 0) close(in);
  if (out >= 0) close(out);
}

static void try_open(const char* how, const char* path, int flags, int must_hold_bytes) {
  char byte;
  const int fd = open(path, flags | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  if (!must_hold_bytes || read(fd, &byte, 1) == 1) escaped(how, path);
  close(fd);
}

static void try_settings(void) {
  static const char* const procs[] = {"/proc", "/foo"};
  char path[512];
  for (int i = 0; i < 2; ++i) {
    snprintf(path, sizeof path, "%s/sys/kernel/core_pattern", procs[i]);
    try_write_back(path);
    snprintf(path, sizeof path, "%s/sysrq-trigger", procs[i]);
    try_open("may write to", path, O_WRONLY, 0);
    static const char* const hidden[] = {"keys", "timer_list", "kcore"};
    for (int j = 0; j < 3; ++j) {
      snprintf(path, sizeof path, "%s/%s", procs[i], hidden[j]);
      try_open("reads what is to be hidden:", path, O_RDONLY, 1);
    }
  }
  static const char* const sys[] = {"/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/ksm/run",
                                    "/sys/kernel/mm/transparent_hugepage/enabled"};
  for (int i = 0; i < 4; ++i) try_open("may write to", sys[i], O_WRONLY, 0);
  DIR* groups = opendir("/sys/fs/cgroup");
  for (struct dirent* one; groups != NULL && (one = readdir(groups)) != NULL;) {
    if (one->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/sys/fs/cgroup/%s/varve-probe", one->d_name);
    if (mkdir(path, 0700) == 0) {
      escaped("made a cgroup:", path);
      rmdir(path);
    }
    snprintf(path, sizeof path, "/sys/fs/cgroup/%s/release_agent", one->d_name);
    try_open("may write to", path, O_WRONLY, 0);
  }
  if (groups != NULL) closedir(groups);
}

static void try_device(const char* path) {
  const int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return;
  escaped("opened a disk of the machine:", path);
  if (reads_secret(fd) && pwrite(fd, "OWNED", 5, 0) == 5) escaped("and wrote to it:", path);
  close(fd);
}

static int visit(const char* path, const struct stat* status, int kind, struct FTW* place) {
  (void)place;
  if (kind == FTW_F && S_ISBLK(status->st_mode)) try_device(path);
  if (kind == FTW_F && S_ISCHR(status->st_mode) && status->st_rdev == makedev(1, 11))
    try_open("opened the kernel's log:", path, O_RDONLY, 0);
  return kind == FTW_D &&
                 (!strcmp(path, "/proc") || !strcmp(path, "/sys") || !strcmp(path, "/foo") || !strcmp(path, "/dev/pts"))
             ? FTW_SKIP_SUBTREE
             : FTW_CONTINUE;
}

static void try_devices(void) {
  unsigned first = 0, second = 0;
  if (sscanf(getenv("PROBE_DISK") ? getenv("PROBE_DISK") : "", "%u:%u", &first, &second) != 2) return;
  static const char* const folders[] = {".", "/tmp", "/dev", "/dev/shm", "/run", "/data", "/"};
  char path[256];
  for (int i = 0; i < 7; ++i) {
    snprintf(path, sizeof path, "%s/varve-disk", folders[i]);
    if (mknod(path, S_IFBLK | 0666, makedev(first, second)) == 0) try_device(path), unlink(path);
    if (mknod(path, S_IFCHR | 0666, makedev(1, 11)) == 0)
      try_open("opened the kernel's log:", path, O_RDONLY, 0), unlink(path);
  }
  nftw("/", visit, 16, FTW_PHYS | FTW_MOUNT | FTW_ACTIONRETVAL);
}

static void type_into(const char* path, int fd) {
  static const char words[] = "#OWNED\n";
  if (path != NULL) fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  for (size_t i = 0; fd >= 0 && i < sizeof words - 1; ++i) ioctl(fd, TIOCSTI, &words[i]);
}

// Whether it reached the caller's terminal is for the caller to see.
static void try_terminal(void) {
  for (int fd = 0; fd < 3; ++fd) type_into(NULL, fd);
  type_into("/dev/tty", -1), type_into("/dev/console", -1);
  char path[32];
  for (int i = 0; i < 8; ++i) snprintf(path, sizeof path, "/dev/pts/%d", i), type_into(path, -1);
}

static void try_network(void) {
  const char* name = getenv("PROBE_SOCKET");
  const char* port = getenv("PROBE_PORT");
  if (name == NULL || port == NULL) return;
  struct sockaddr_un local = {.sun_family = AF_UNIX};
  strncpy(local.sun_path + 1, name, sizeof local.sun_path - 2);
  const int one = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(one, (struct sockaddr*)&local, (socklen_t)(sizeof local.sun_family + 1 + strlen(name))) == 0)
    escaped("reached an abstract socket:", name);
  struct sockaddr_in loopback = {
      .sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(port)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const int two = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(two, (struct sockaddr*)&loopback, sizeof loopback) == 0) escaped("reached a port of the machine:", port);
}

static void try_keyring(void) {
  char secret[64] = "";
  const long key = syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, "user", "varve-canary", 0);
  if (key > 0 && syscall(SYS_keyctl, KEYCTL_READ, key, secret, sizeof secret - 1) > 0)
    escaped("reads the caller's keyring:", secret);
}

static void try_rights(void) {
  struct {
    struct file_handle head;
    char bytes[16];
  } handle = {.head = {.handle_bytes = 8, .handle_type = 1}};
  const int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (syscall(SYS_open_by_handle_at, root, &handle, O_RDONLY) >= 0 || (errno != EPERM && errno != ENOSYS))
    escaped("opens files by handle", "");
  mkdir("/tmp/varve-jail", 0755);
  if (mount("proc", "/tmp/varve-jail", "proc", 0, "") == 0) escaped("mounts", "");
  if (unshare(CLONE_NEWNS) == 0) escaped("makes mount namespaces", "");
  const pid_t child = fork();
  if (child == 0) {  // chroot(2) within chroot(2)
    if (chroot("/tmp/varve-jail") == 0 && fchdir(root) == 0) {
      for (int i = 0; i < 64; ++i)
        if (chdir("..") != 0) break;
      if (chroot(".") == 0) try_folder("left its root, to", "");
    }
    _exit(0);
  }
  waitpid(child, NULL, 0);
  rmdir("/tmp/varve-jail");
  close(root);
}

static void try_variables(char** variables) {
  for (; *variables != NULL; ++variables)
    if (strstr(*variables, SECRET) != NULL) escaped("has a variable of its caller:", *variables);
}

// A process outside, perhaps of another container, gets the descriptor: it has it after this session's end, when nobody
// executes that program any more.
static void hand_over(int fd) {
  const char* name = getenv("PROBE_SOCKET");
  struct sockaddr_un place = {.sun_family = AF_UNIX};
  char byte = 'x', space[CMSG_SPACE(sizeof fd)] = "";
  struct iovec bytes = {&byte, 1};
  struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  if (name == NULL) return;
  strncpy(place.sun_path + 1, name, sizeof place.sun_path - 2);
  struct cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(head), &fd, sizeof fd);
  const int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(to, (struct sockaddr*)&place, (socklen_t)(sizeof place.sun_family + 1 + strlen(name))) != 0 ||
      sendmsg(to, &message, 0) != 1)
    printf("(descriptor %d is not handed over: %s)\n", fd, strerror(errno));
  close(to);
}

// Called by interpreter.c with an open descriptor of the program that executed it.
static void try_program(void) {
  char path[64], bytes[4];
  for (int fd = 3; fd < 64; ++fd) {
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (access(path, F_OK) != 0) continue;
    hand_over(fd);
    struct stat found;
    if (stat(path, &found) == 0 && chmod(path, found.st_mode & 07777) == 0)
      printf("CHANGED %lu %lu\n", (unsigned long)found.st_dev, (unsigned long)found.st_ino);
    for (int attempt = 0; attempt < 20; ++attempt) {
      const int out = open(path, O_RDWR | O_CLOEXEC);
      if (out < 0 && errno == ETXTBSY) {
        usleep(10000);  // for its last user to end
        continue;
      }
      struct stat status;
      if (out >= 0 && fstat(out, &status) == 0 && S_ISREG(status.st_mode) && pread(out, bytes, 4, 0) == 4 &&
          pwrite(out, bytes, 4, 0) == 4)
        escaped("wrote to the program that ran it:", path);
      break;
    }
  }
}

int main(int argc, char** argv, char** variables) {
  if (argc > 1 && strcmp(argv[1], "nothing") == 0) return 0;
  if (argc > 1 && strcmp(argv[1], "pause") == 0) return pause();
  if (argc > 1 && strcmp(argv[1], "exe") == 0) {
    try_program();
    puts("SESSION WORKS");
    return 0;
  }
  // An image may have filled its variables with anything; the machine's words come last.
  canary = getenv("PROBE_CANARY") ? getenv("PROBE_CANARY") + 1 : "nowhere";
  try_folder("the working directory", ".");
  try_folder("the root", "");
  try_descriptors();
  try_variables(variables);
  if (argc > 1 && strcmp(argv[1], "look") == 0) return 0;  // on the machine itself, to see that it would notice
  try_folder("/proc/self/cwd", "/proc/self/cwd");
  try_processes();
  try_settings();
  try_devices();
  try_terminal();
  try_network();
  try_keyring();
  try_rights();
  puts("SESSION WORKS");
  return 0;
}
