#include "core/trust/docker_name.h"

#include "core/base/errors.h"
#include "core/oci/reference.h"

namespace varve::trust {

std::optional<DockerName> DockerName::parse(std::string_view text) {
  for (const std::string_view local : {"oci:", "docker-archive:", "dir:"})
    if (text.starts_with(local)) return std::nullopt;
  if (text.find("://") != std::string_view::npos) return std::nullopt;
  try {
    // Never what lies in some folder: a name means the same wherever it is read.
    const auto reference = oci::Reference::parse("docker://" + std::string(text));
    DockerName name{.repository = reference.host + '/' + reference.repository,
                    .tag = reference.tag.value_or(""),
                    .digest = reference.digest ? reference.digest->to_string() : ""};
    // The parser completes "latest", which a signature does not mean.
    if (name.tag == "latest" && !text.substr(0, text.find('@')).ends_with(":latest")) name.tag.clear();
    return name;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string DockerName::to_string() const {
  return repository + (tag.empty() ? "" : ':' + tag) + (digest.empty() ? "" : '@' + digest);
}

}  // namespace varve::trust
