#include "cli/trust/passphrase.h"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>

#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve::cli {
namespace {

constexpr std::size_t kMaxPassphraseBytes = 4096;
constexpr const char* kVariable = "COSIGN_PASSWORD";

// What is typed does not show; the terminal is as it was when this ends, also by an exception.
class WithoutEcho {
 public:
  explicit WithoutEcho(int fd) : fd_(fd) {
    if (::tcgetattr(fd_, &before_) != 0) fail_errno("the terminal");
    auto silent = before_;
    silent.c_lflag &= ~tcflag_t(ECHO);
    if (::tcsetattr(fd_, TCSAFLUSH, &silent) != 0) fail_errno("the terminal");
  }
  ~WithoutEcho() { ::tcsetattr(fd_, TCSAFLUSH, &before_); }
  WithoutEcho(const WithoutEcho&) = delete;
  WithoutEcho& operator=(const WithoutEcho&) = delete;

 private:
  int fd_;
  termios before_{};
};

std::string ask(int fd, const std::string& question) {
  write_all(fd, as_bytes(question), "the terminal");
  std::string line;
  const WithoutEcho silent(fd);
  for (char c = 0; line.size() < kMaxPassphraseBytes;) {
    const auto got = ::read(fd, &c, 1);
    if (got < 0 && errno == EINTR) throw Cancelled("cancelled");
    if (got < 0) fail_errno("the terminal");
    if (got == 0 || c == '\n') break;
    line += c;
  }
  write_all(fd, as_bytes("\n"), "the terminal");
  return line;
}

std::string from_file(const std::filesystem::path& file) {
  const auto bytes = read_file(file, kMaxPassphraseBytes);
  std::string text(as_text(bytes));
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace

std::string read_passphrase(const std::filesystem::path& file, const std::string& what, bool is_new) {
  if (!file.empty()) return from_file(file);
  if (const char* value = std::getenv(kVariable)) return value;  // empty, too: set is set
  const UniqueFd terminal(::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY));
  if (!terminal)
    fail<UsageError>("{}: its passphrase is not known: say --passphrase-file FILE, or set ${} (empty is allowed)", what,
                     kVariable);
  auto passphrase = ask(terminal.get(), (is_new ? "New passphrase for " : "Passphrase for ") + what + ": ");
  if (is_new && ask(terminal.get(), "Again: ") != passphrase)
    fail<UsageError>("{}: that were two passphrases; nothing was written", what);
  return passphrase;
}

}  // namespace varve::cli
