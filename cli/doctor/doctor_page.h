#pragma once
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace varve::cli {

// The document of `varve doctor` for people, about a page.
std::string doctor_page(const nlohmann::json& document);

}  // namespace varve::cli
