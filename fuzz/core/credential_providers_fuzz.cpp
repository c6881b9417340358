// The configuration of the kubelet's credential providers, and what a provider answers, with any content: refused, or
// of a form that can be acted on.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/base/errors.h"
#include "core/oci/internal/credential_providers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace oci = varve::oci::internal;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const auto& provider : oci::parse_credential_providers(text, "config")) {
      if (provider.name.empty() || provider.name.find('/') != provider.name.npos) std::abort();
      for (const auto& pattern : provider.match_images) oci::image_matches(pattern, "registry.example:5000/team/app");
    }
  } catch (const varve::Error&) {
  }
  try {
    const auto answer = oci::parse_provider_answer(text, "credentialprovider.kubelet.k8s.io/v1", "answer");
    const auto found = answer.find("registry.example:5000/team/app");
    if (found && found->username.empty() && found->password.empty()) std::abort();
  } catch (const varve::Error&) {
  }
  if (const auto duration = oci::parse_go_duration(text); duration && duration->count() < 0) std::abort();
  return 0;
}
