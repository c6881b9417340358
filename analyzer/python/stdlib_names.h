#pragma once
// Which modules come with Python itself. Table: stdlib_table.inc, made by scripts/make_stdlib_table.py.
#include <string>
#include <string_view>

namespace varve::python {

// `module` may be dotted: its first part decides. `version` as in "3.11.2" or "3.11"; "2.7" for Python 2; "" = of any
// Python that is known. Versions newer than the table count as its newest, older 3.x as its oldest.
bool is_stdlib(std::string_view module, std::string_view version);

}  // namespace varve::python
