#pragma once
// Where indexes of an image are looked for: beside it, then in the further repositories that the user names
// (index-from), in their order. Whose word counts is another matter: core/trust/judge.h.
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/index/format/image_index.h"

namespace varve::index {

struct IndexSource {
  std::shared_ptr<oci::Repository> repository;
  std::string index_from;  // its name, where it is a further one; "" = the image's own
};

// Until `visit` returns true. One that cannot be opened or asked keeps nobody from asking the next: returns what was
// wrong, the first trouble first.
std::vector<std::exception_ptr> visit_index_sources(const oci::Image& image,
                                                    const std::function<bool(const IndexSource&)>& visit);

// Names of the further ones, as Repository::name() has them. Throws UsageError for a reference that is none.
std::vector<std::string> index_from_names(const oci::Image& image);

// An index that is offered somewhere, believed or not: the first that is found, and by whom. Throws what went wrong if
// none was found.
struct OfferedIndex {
  ImageIndexBlobs blobs;
  IndexSource source;
};
std::optional<OfferedIndex> find_offered(const oci::Image& image);

// The repository of that name: the image's own, or opened with its options. Throws as open_repository() does.
std::shared_ptr<oci::Repository> repository_named(const oci::Image& image, const std::string& name);

}  // namespace varve::index
