#pragma once
// Which calls make a library load another one that the code never names: data/backends.toml, which the program carries.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/notebooks/findings.h"

namespace varve::notebooks {

// A call that may need a backend, until it is known what the notebook imports.
struct BackendHit {
  std::size_t row = 0;  // of the table
  std::string call;
  std::string engine;  // the literal given as engine=; "" = none
  std::uint32_t cell = 0, line = 0;
};

// Rows of the table that the call of `name`, behind `qualifier` ("df.style"), may be of. Safe from any thread.
const std::vector<std::size_t>& backend_rows(std::string_view name, std::string_view qualifier);

// The hits whose library is among the imports, and imports that are enough, as backends; in order of place.
std::vector<Backend> backends_of(const std::vector<BackendHit>& hits, const std::vector<Import>& imports);

}  // namespace varve::notebooks
