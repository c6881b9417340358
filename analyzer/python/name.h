#pragma once
// Names of distributions, and what the names of wheels and of installed records' folders say. PEP 427, 440, 503, 625;
// egg formats of setuptools.
#include <optional>
#include <string>
#include <string_view>

namespace varve::python {

// PEP 503: lower case, runs of "-_." become one "-". Any text is taken; see is_name().
std::string normalize_name(std::string_view name);

// PEP 508: ASCII letters and digits, "-_." inside.
bool is_name(std::string_view text);

// What a file's or folder's name says of a distribution. Nothing is normalised.
struct RecordName {
  std::string name;
  std::string version;   // "" where the name has none ("foo.egg-info")
  std::string python;    // "3.9" of "foo-1.0-py3.9.egg-info"; "" = not said
  std::string platform;  // "linux-x86_64" of an egg that has one
};

// "numpy-1.26.4.dist-info", "foo-1.0-py3.9.egg-info" (folder or single file), "foo-1.0-py3.9-linux-x86_64.egg". The
// last component of a path only. Absent when it is none of these.
std::optional<RecordName> parse_record_name(std::string_view file_name);

}  // namespace varve::python
