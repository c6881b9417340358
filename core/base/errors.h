#pragma once
// The errors that cross rooms. A message names the object, what was wrong and, where it helps, what to do.
#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

#include <fmt/format.h>

namespace varve {

// Base of all errors that are ours; system calls throw std::system_error.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bytes that cannot be right: a digest that does not match, an offset outside its object, a broken format.
class CorruptData : public Error {
 public:
  using Error::Error;
};

// What was asked for is not there (a tag, an index, a path inside an image).
class NotFound : public Error {
 public:
  using Error::Error;
};

// Right, but not something we can work on (an unknown media type, a limit exceeded, a feature the machine lacks).
class Unsupported : public Error {
 public:
  using Error::Error;
};

// The words of the user are off: exit status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// May pass when tried again (registry away, disk full): exit status 75.
class TemporaryError : public Error {
 public:
  using Error::Error;
};

// Cancelled by the user or by shutdown.
class Cancelled : public Error {
 public:
  using Error::Error;
};

template <typename E, typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

// Throws std::system_error for the current errno; the text says what was tried on what.
template <typename... Args>
[[noreturn]] void fail_errno(fmt::format_string<Args...> format, Args&&... args) {
  const int error = errno;
  throw std::system_error(error, std::generic_category(), fmt::format(format, std::forward<Args>(args)...));
}

// The errno that a FUSE reply carries for an exception: the system's own code, ENOENT for NotFound, else EIO.
int errno_for(const std::exception& error);

// The exit status of the program for an exception (CLI.md "Everywhere"): 2 usage, 75 temporary, 1 otherwise.
int exit_status_for(const std::exception& error);

}  // namespace varve
