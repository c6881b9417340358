#pragma once
// What looks wrong in the document of `varve doctor`, each with what to do next.
#include <nlohmann/json_fwd.hpp>

namespace varve::cli {

// [{"what": ..., "next": ...}]; empty if nothing does. Looks only at the document, which must be complete.
nlohmann::json find_faults(const nlohmann::json& document);

}  // namespace varve::cli
