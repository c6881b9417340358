#pragma once
// What a registry has: the tags of a repository, and the repositories (distribution-spec v1.1, "Listing Tags"; the
// catalog of distribution, which others have too and may refuse).
#include <string>
#include <vector>

#include "core/oci/reference.h"
#include "core/oci/repository.h"

namespace varve::oci {

inline constexpr std::size_t kMaxListed = 200'000;

// The registry itself is asked, no mirror. Both throw TemporaryError, NotFound for a repository that is not there,
// Error with the registry's refusal, and Unsupported beyond kMaxListed. In no particular order.
std::vector<std::string> list_tags(const Reference& repository, const RegistryOptions& options);
// Of the host of `registry`.
std::vector<std::string> list_repositories(const Reference& registry, const RegistryOptions& options);

}  // namespace varve::oci
