#pragma once
#include <string>
#include <string_view>

namespace varve::oci::internal {

// A name in a docker-archive in full form: "app" is "docker.io/library/app:latest". Throws UsageError for what is none.
std::string archive_name(std::string_view text);

}  // namespace varve::oci::internal
