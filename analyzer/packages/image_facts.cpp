#include "analyzer/packages/image_facts.h"

namespace varve::packages {

std::vector<SourceLayer> layers_of(const oci::Image& image, const std::vector<std::uint64_t>& stream_bytes) {
  std::vector<SourceLayer> layers;
  for (std::size_t i = 0; i < image.manifest.layers.size(); ++i) {
    const auto& descriptor = image.manifest.layers[i];
    layers.push_back({.digest = descriptor.digest,
                      .compressed_bytes = descriptor.size,
                      .stream_bytes = stream_bytes.at(i),
                      .created_by = image.config.created_by.at(i)});
  }
  return layers;
}

std::map<std::string, std::string> environment_of(const oci::Image& image) {
  std::map<std::string, std::string> environment;
  for (const auto& setting : image.config.env) {
    const auto equals = setting.find('=');
    if (equals != std::string::npos) environment[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return environment;
}

}  // namespace varve::packages
