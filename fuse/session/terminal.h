#pragma once
// The caller's terminal, and the one that a session gets in its place.
#include <poll.h>
#include <sys/types.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <string>

#include "core/base/files/unique_fd.h"

namespace varve::fuse {

// Gives the terminal at standard input back as it was, whatever the session's programs made of it. Does nothing where
// there is none.
class TerminalKeeper {
 public:
  explicit TerminalKeeper(bool terminal) : kept_(terminal && ::tcgetattr(STDIN_FILENO, &state_) == 0) {}
  ~TerminalKeeper();
  TerminalKeeper(const TerminalKeeper&) = delete;
  TerminalKeeper& operator=(const TerminalKeeper&) = delete;

  // Each key goes on as it is pressed: what it means is the session's terminal to say.
  void pass_keys_on() const;
  // Else it is another program's terminal just now. To be asked in the caller's PID namespace: elsewhere process groups
  // have no number.
  static bool in_foreground() { return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }

 private:
  termios state_{};
  bool kept_;
};

// A terminal of the session's own /dev/pts, and what goes between it and the caller's at the standard streams. That one
// is out of the session's reach: nobody inside can type into the shell that it was started from. Used by one process,
// in the session's root.
class SessionTerminal {
 public:
  // As large as the caller's. Throws std::system_error.
  SessionTerminal();

  const std::string& name() const { return name_; }  // "/dev/pts/0"
  // In the command's process: makes it the leader of a session whose terminal this is, its standard streams too, and
  // `uid`'s.
  void enter(uid_t uid) const;
  // What to poll for: the caller's keys, room for output, the session's terminal.
  std::array<pollfd, 3> polls() const;
  // Moves what can be moved, without waiting. True at the moment when the caller's terminal is found to be gone; what
  // is said from then on is nobody's.
  bool relay(const std::array<pollfd, 3>& polled);
  // After the command's end: what it said last.
  void drain();
  void take_size() const;
  // From the background nothing can be read: to be tried again after a while.
  bool paused() const { return input_paused_; }

 private:
  void read_keys();
  void write_keys();
  bool read_output();
  void write_output();

  UniqueFd outer_side_;  // what the session's terminal is driven by
  UniqueFd inner_;       // open to the end, so that the other side never reads as ended
  std::string name_;
  std::string keys_;    // typed, not yet taken
  std::string output_;  // said, not yet shown
  bool input_ended_ = false;
  bool input_paused_ = false;
  bool gone_ = false;
};

}  // namespace varve::fuse
