#include "core/index/index_sources.h"

#include "core/base/errors.h"

namespace varve::index {
namespace {

// Of what Repository::name() says. The name of a layout folder may hold what would be read as its tag.
oci::Reference reference_of(std::string_view repository) {
  constexpr std::string_view kLayout = "oci:";
  for (const std::string_view file : {"docker-archive:", "dir:"})
    if (repository.starts_with(file)) return oci::Reference::parse(repository);
  if (!repository.starts_with(kLayout)) return oci::Reference::parse("docker://" + std::string(repository));
  oci::Reference reference;
  reference.kind = oci::Reference::Kind::kLayout;
  reference.layout_dir = repository.substr(kLayout.size());
  return reference;
}

}  // namespace

std::vector<std::exception_ptr> visit_index_sources(const oci::Image& image,
                                                    const std::function<bool(const IndexSource&)>& visit) {
  std::vector<std::exception_ptr> troubles;
  const auto asks = [&](const std::function<IndexSource()>& open) {
    try {
      return visit(open());
    } catch (const Cancelled&) {
      throw;
    } catch (const std::exception&) {
      troubles.push_back(std::current_exception());
      return false;
    }
  };
  if (asks([&] { return IndexSource{.repository = image.repository, .index_from = {}}; })) return troubles;
  for (const auto& name : index_from_names(image)) {
    if (name == image.repository->name()) continue;
    if (asks([&] { return IndexSource{.repository = repository_named(image, name), .index_from = name}; })) break;
  }
  return troubles;
}

std::vector<std::string> index_from_names(const oci::Image& image) {
  std::vector<std::string> names;
  for (const auto& text : image.registry.index_from) names.push_back(oci::Reference::parse(text).repository_name());
  return names;
}

std::optional<OfferedIndex> find_offered(const oci::Image& image) {
  std::optional<OfferedIndex> offered;
  const auto troubles = visit_index_sources(image, [&](const IndexSource& source) {
    if (auto found = find_index(*source.repository, image))
      offered = OfferedIndex{.blobs = std::move(*found), .source = source};
    return offered.has_value();
  });
  if (!offered && !troubles.empty()) std::rethrow_exception(troubles.front());
  return offered;
}

std::shared_ptr<oci::Repository> repository_named(const oci::Image& image, const std::string& name) {
  return name == image.repository->name() ? image.repository : oci::open_repository(reference_of(name), image.registry);
}

}  // namespace varve::index
