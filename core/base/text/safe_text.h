#pragma once
// Text of others (names in images, answers of registries, output of programs) as it may be printed: nothing that a
// terminal would obey, that a reader would not see, or that would make him see something else. All give valid UTF-8.
#include <string>
#include <string_view>

namespace varve {

// For names, in a form that can be told back: control, direction and invisible characters and bytes that are not UTF-8
// as \xNN, backslashes doubled. Always one line.
std::string printable(std::string_view name);
// The same of a message that may have names in it: its backslashes stay, and of its lines those that go on with two
// spaces, as the longer ones of Varve do; others become one.
std::string message_text(std::string_view message);
// A name for JSON, which holds any character but no other bytes: as it is where it is UTF-8, else printable().
std::string json_name(const std::string& name);

// For readers: the same characters as "[U+202E]", bytes that are not UTF-8 as U+FFFD. Longer text than `limit`
// characters loses its middle to "…".
std::string visible(std::string_view text, std::size_t limit = 200);

// What another program says, as one line: the same characters become spaces, bytes that are not UTF-8 U+FFFD; cut after
// `max_bytes` or a little less.
std::string single_line(std::string_view text, std::size_t max_bytes = std::string_view::npos);

}  // namespace varve
