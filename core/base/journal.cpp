#include "core/base/journal.h"

#define SD_JOURNAL_SUPPRESS_LOCATION  // log.cpp for every line
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <cstdlib>
#include <list>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/journal_line.h"

namespace varve::log {
namespace {

constexpr const char* kSocket = "/run/systemd/journal/socket";  // libsystemd drops lines in silence without it

thread_local const Field* innermost = nullptr;

}  // namespace

Field::Field(const char* name, const std::string& value) noexcept : name_(name), value_(value), outer_(innermost) {
  innermost = this;
}

Field::~Field() { innermost = outer_; }

class JournalLine {
 public:
  JournalLine(int priority, std::string_view message) {
    add("MESSAGE", message);
    add("PRIORITY", std::to_string(priority));
    add("SYSLOG_IDENTIFIER", "varve");
    for (const auto* field = innermost; field != nullptr; field = field->outer_)
      if (!field->value_.empty()) add(fmt::format("VARVE_{}", field->name_), field->value_);
  }

  bool send() const {
    return ::access(kSocket, W_OK) == 0 && ::sd_journal_sendv(parts_.data(), static_cast<int>(parts_.size())) == 0;
  }

 private:
  void add(std::string_view name, std::string_view value) {
    const auto& text = texts_.emplace_back(fmt::format("{}={}", name, value));
    parts_.push_back({.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()});
  }

  std::list<std::string> texts_;  // stay where they are
  std::vector<iovec> parts_;
};

bool standard_error_is_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct ::stat status {};
  return stream != nullptr && ::fstat(STDERR_FILENO, &status) == 0 &&
         fmt::format("{}:{}", status.st_dev, status.st_ino) == stream && ::access(kSocket, W_OK) == 0;
}

bool send_to_journal(int priority, std::string_view message) noexcept {
  try {
    return JournalLine(priority, message).send();
  } catch (const std::exception&) {  // no memory: the other way needs less
    return false;
  }
}

}  // namespace varve::log
