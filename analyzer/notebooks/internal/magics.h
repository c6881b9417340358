#pragma once
// IPython's own syntax: lines that begin with % or !, cells that begin with %%, and what these magics use.
#include <string_view>

#include "analyzer/notebooks/internal/collector.h"

namespace varve::notebooks {

// The text begins with "%%name": the magic's own use, its line, and the body by what it is.
void read_cell_magic(const Source& source, Collector& out);

// "%%name" below other code: IPython refuses it. True if all below it has been read as that magic's body; false if the
// body would be Python anyway, or the name is unknown.
bool read_late_cell_magic(const Source& source, Collector& out);

// A line that begins with %, ! or !!.
void read_escaped_line(const Source& source, Collector& out);

// Whether a line that begins with `word` may be a magic without its %.
bool may_be_automagic(std::string_view word);
bool is_automagic(std::string_view line);
void read_automagic_line(const Source& source, Collector& out);

}  // namespace varve::notebooks
