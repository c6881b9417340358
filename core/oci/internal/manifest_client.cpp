#include "core/oci/internal/manifest_client.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/oci/internal/descriptor_json.h"
#include "core/oci/manifest.h"

namespace varve::oci::internal {
namespace {

constexpr std::size_t kMaxRemembered = 64;
// Without it some registries convert to schema 1 or say that the manifest is unknown.
constexpr std::string_view kAccept =
    "Accept: application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

// The header says it, or the document does: some servers know only "application/json".
std::string media_type_of(const HttpHead& head, ByteView json, std::string_view what) {
  auto type = std::string(head.headers.find("Content-Type").value_or(""));
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  if (is_index_media_type(type) || is_manifest_media_type(type) ||
      type.starts_with("application/vnd.docker.distribution.manifest.v1+"))
    return type;
  return document_media_type(json, what);
}

}  // namespace

std::optional<Document> ManifestClient::find(std::string_view selector) {
  if (const auto digest = Digest::try_parse(selector)) {
    if (auto known = remembered(*digest)) return known;
    auto fetched = fetch(digest->to_string(), digest);
    return fetched ? std::optional(std::move(fetched->document)) : std::nullopt;
  }
  const auto tag = std::string(selector);
  // Asking where a tag points costs less than the document, and is not counted by registries that count. What it points
  // to for the first time is not here.
  if (known_.with([&](Known& known) { return known.tags.contains(tag); }))
    if (const auto digest = digest_of_tag(tag))
      if (auto known = remembered(*digest)) return known;
  auto fetched = fetch(tag, std::nullopt);
  return fetched ? std::optional(std::move(fetched->document)) : std::nullopt;
}

std::optional<ManifestClient::Tagged> ManifestClient::find_tagged(const std::string& tag) {
  return fetch(tag, std::nullopt);
}

std::optional<Digest> ManifestClient::digest_of_tag(const std::string& tag) {
  HttpRequest request;
  request.method = "HEAD";
  request.url = endpoint_.url("manifests/" + tag);
  request.headers = {std::string(kAccept)};
  const auto response = endpoint_.call(request, endpoint_.pull_scope(), endpoint_.name() + ": manifest " + tag);
  const auto digest = response.head.headers.find("Docker-Content-Digest");
  return response.status() == 200 && digest ? Digest::try_parse(*digest) : std::nullopt;
}

std::optional<ManifestClient::Tagged> ManifestClient::fetch(const std::string& reference,
                                                            const std::optional<Digest>& expected) {
  const auto what = endpoint_.name() + ": manifest " + reference;
  HttpRequest request;
  request.url = endpoint_.url("manifests/" + reference);
  request.headers = {std::string(kAccept)};
  request.max_body_bytes = kMaxManifestBytes;
  for (int attempt = 0;; ++attempt) {
    request.fresh_connection = attempt > 0;
    auto response = endpoint_.call(request, endpoint_.pull_scope(), what);
    if (response.status() == 404) return std::nullopt;
    if (response.status() != 200) fail_response(response, what);
    const auto digest = digest_of(response.body);
    const auto header = response.head.headers.find("Docker-Content-Digest");
    const auto claimed = header ? Digest::try_parse(*header) : std::nullopt;
    if (digest != expected.value_or(claimed.value_or(digest))) {
      if (attempt > 0)
        fail<CorruptData>("{}: the content does not match the digest {}", what,
                          expected.value_or(claimed.value_or(digest)).to_string());
      continue;
    }
    Tagged tagged;
    tagged.document.descriptor.media_type = media_type_of(response.head, response.body, what);
    tagged.document.descriptor.digest = digest;
    tagged.document.descriptor.size = response.body.size();
    tagged.document.bytes = std::move(response.body);
    tagged.etag = std::string(response.head.headers.find("ETag").value_or(""));
    remember(tagged.document, expected ? "" : reference);
    return tagged;
  }
}

ManifestClient::Put ManifestClient::put(ByteView json, std::string_view media_type, std::string_view reference,
                                        const std::string& if_match) {
  Put result;
  result.descriptor = descriptor_of(json, media_type);
  const auto name = reference.empty() ? result.descriptor.digest.to_string() : std::string(reference);
  const auto what = endpoint_.name() + ": push of manifest " + name;
  HttpRequest request;
  request.method = "PUT";
  request.url = endpoint_.url("manifests/" + name);
  request.headers = {fmt::format("Content-Type: {}", media_type)};
  if (!if_match.empty()) request.headers.push_back("If-Match: " + if_match);
  request.has_body = true;
  request.body_bytes = json.size();
  request.read_body = [json](std::uint64_t offset, std::span<std::byte> into) {
    std::copy_n(json.begin() + std::ptrdiff_t(offset), into.size(), into.begin());
    return into.size();
  };
  const auto response = endpoint_.call(request, endpoint_.push_scope(), what);
  if (response.status() == 412 && !if_match.empty()) {
    result.overtaken = true;
    return result;
  }
  if (response.status() < 200 || response.status() >= 300) fail_response(response, what);
  const auto stored = response.head.headers.find("Docker-Content-Digest");
  const auto digest = stored ? Digest::try_parse(*stored) : std::nullopt;
  if (digest && *digest != result.descriptor.digest)
    fail<CorruptData>("{}: the registry stored {} instead of {}", what, digest->to_string(),
                      result.descriptor.digest.to_string());
  result.lists_subject = response.head.headers.find("OCI-Subject").has_value();
  return result;
}

std::optional<Document> ManifestClient::remembered(const Digest& digest) {
  return known_.with([&](Known& known) -> std::optional<Document> {
    const auto found = known.documents.find(digest);
    return found == known.documents.end() ? std::nullopt : std::optional(found->second);
  });
}

void ManifestClient::remember(const Document& document, const std::string& tag) {
  known_.with([&](Known& known) {
    if (known.documents.size() >= kMaxRemembered) known = {};
    known.documents.emplace(document.descriptor.digest, document);
    if (!tag.empty()) known.tags.insert(tag);
  });
}

}  // namespace varve::oci::internal
