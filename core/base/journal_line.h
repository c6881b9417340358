#pragma once
// Between log.cpp and journal.cpp, the only file with libsystemd.
#include <string_view>

namespace varve::log {

// JOURNAL_STREAM names what standard error is, and the journal listens.
bool standard_error_is_journal();
// With the fields of this thread. `priority`: as syslog(3) has them. False if the journal did not take it.
bool send_to_journal(int priority, std::string_view message) noexcept;

}  // namespace varve::log
