#pragma once
// Which Pythons an image has, and where each looks for modules.
#include <map>
#include <string>
#include <vector>

#include "analyzer/packages/internal/record.h"

namespace varve::packages::internal {

inline constexpr std::size_t kMaxInterpreters = 200;  // further ones are left out

// The one that `python3` on the image's PATH means comes first, the others by their path. Never run: found by
// bin/python*, lib/pythonX.Y, pyvenv.cfg.
std::vector<Interpreter> find_interpreters(const index::FileSource& source, const FileTable& table,
                                           const Records& records);

// What markers see on Linux. `version` "3.11.2", "3.11" or "" (unknown: the newest Python that is known).
python::Environment marker_environment(const std::string& version, const std::string& architecture);

// "3.11" of "3.11.2".
std::string minor_of(std::string_view version);
// 311 of "3.11.2"; 0 if it says none.
int minor_number(std::string_view version);

}  // namespace varve::packages::internal
