// Tries what a session's program must not be able to do, and prints what became of each: "allowed", or the error.
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace {

void tell(const char* what, long result) {
  std::printf("%s: %s\n", what, result >= 0 ? "allowed" : std::strerror(errno));
}

// The words that a shell would do, key by key.
void type_into(const char* name, int terminal, unsigned long number) {
  long result = 0;
  for (const char* key = "echo typed\n"; *key != '\0'; ++key) result = ::syscall(SYS_ioctl, terminal, number, key);
  tell(name, result);
}

}  // namespace

int main() {
  const int terminal = ::open("/dev/tty", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDERR_FILENO, terminal}) {
    type_into("type", fd, TIOCSTI);
    type_into("type with a longer number", fd, TIOCSTI | 1UL << 32);
    char paste[] = {3};  // TIOCL_PASTESEL
    tell("paste", ::ioctl(fd, TIOCLINUX, paste));
  }
  tell("user namespace", ::unshare(CLONE_NEWUSER));
  tell("mount namespace", ::unshare(CLONE_NEWNS));
  tell("own file table", ::unshare(CLONE_FILES));
  tell("mount", ::syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, nullptr));
  tell("keyring", ::syscall(SYS_keyctl, 0, -3, 0));  // KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING
  tell("bpf", ::syscall(SYS_bpf, 0, nullptr, 0));
  tell("clone3", ::syscall(SYS_clone3, nullptr, 0));
  tell("a call of the future", ::syscall(5000));
  tell("fork", ::fork() == 0 ? (::_exit(0), 0) : 0);
  std::fflush(nullptr);
  ::_exit(0);  // a sanitizer's last look would ask for what is refused here
}
