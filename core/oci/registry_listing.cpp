#include "core/oci/registry_listing.h"

#include "core/base/errors.h"
#include "core/base/text/json_document.h"
#include "core/oci/internal/http_headers.h"
#include "core/oci/internal/registry_endpoint.h"

namespace varve::oci {
namespace {

constexpr std::string_view kPageEntries = "1000";
constexpr int kMaxPages = 2000;
constexpr JsonLimits kPageLimits{.bytes = 16 << 20, .depth = 8, .values = kMaxListed + 16};

// Lists that are answered in pages, each with a link to the next.
std::vector<std::string> read_pages(internal::RegistryEndpoint& endpoint, const internal::Url& first,
                                    const std::string& scope, std::string_view member, const std::string& what) {
  internal::HttpRequest request;
  request.max_body_bytes = kPageLimits.bytes;
  request.url = *internal::Url::parse(internal::with_query(first.text, "n", kPageEntries));
  std::vector<std::string> names;
  for (int page = 0; page < kMaxPages; ++page) {
    const auto response = endpoint.call(request, scope, what);
    if (response.status() != 200) internal::fail_response(response, what);
    for (auto& name : JsonValue::parse(response.body, what, kPageLimits).maybe(member).texts(kMaxListed))
      names.push_back(std::move(name));
    if (names.size() > kMaxListed) fail<Unsupported>("{}: more than {}", what, kMaxListed);
    const auto link = response.head.headers.find("Link");
    const auto next = link ? internal::parse_next_link(*link) : std::nullopt;
    if (!next) return names;
    const auto target = request.url.resolve(*next);
    if (!target || !target->same_origin(first)) fail<Error>("{}: the next page is at another host", what);
    request.url = *target;
  }
  fail<Unsupported>("{}: more than {} pages", what, kMaxPages);
}

}  // namespace

std::vector<std::string> list_tags(const Reference& repository, const RegistryOptions& options) {
  internal::RegistryEndpoint endpoint(internal::own_source(repository, options.plain_http), options, Clock::system());
  return read_pages(endpoint, endpoint.url("tags/list"), endpoint.pull_scope(), "tags",
                    endpoint.name() + ": list of tags");
}

std::vector<std::string> list_repositories(const Reference& registry, const RegistryOptions& options) {
  const auto source = internal::own_source(registry, options.plain_http);
  internal::RegistryEndpoint endpoint(source, options, Clock::system());
  const auto url = endpoint.url("").resolve(source.root + "/_catalog");
  if (!url) fail<Error>("{}: no valid URL for its catalog", registry.host);
  return read_pages(endpoint, *url, "registry:catalog:*", "repositories", registry.host + ": list of repositories");
}

}  // namespace varve::oci
