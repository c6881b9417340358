#include "core/index/file_source.h"

namespace varve::index {

SourceFacts facts_of(const oci::Image& image, const std::vector<std::uint64_t>& stream_bytes, bool indexed) {
  SourceFacts facts;
  facts.image = image.digest();
  facts.indexed = indexed;
  facts.architecture = image.config.platform.normalised().architecture;
  for (std::size_t i = 0; i < image.manifest.layers.size(); ++i) {
    const auto& descriptor = image.manifest.layers[i];
    facts.layers.push_back({.digest = descriptor.digest,
                            .compressed_bytes = descriptor.size,
                            .stream_bytes = stream_bytes.at(i),
                            .created_by = image.config.created_by.at(i)});
  }
  for (const auto& setting : image.config.env) {
    const auto equals = setting.find('=');
    if (equals != std::string::npos) facts.environment[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return facts;
}

}  // namespace varve::index
