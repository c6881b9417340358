#include "core/oci/internal/referrers.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/oci/internal/descriptor_json.h"
#include "core/oci/manifest.h"

namespace varve::oci::internal {
namespace {

using nlohmann::json;

constexpr int kMaxPages = 256;
constexpr int kMaxTagUpdates = 8;
constexpr std::string_view kPartAnnotation = "dev.varve.part";  // of an entry: the layer that it is about

bool is_about(const Descriptor& entry, const Digest* part) {
  const auto named = entry.annotations.find(std::string(kPartAnnotation));
  if (part == nullptr) return named == entry.annotations.end();
  return named != entry.annotations.end() && named->second == part->to_string();
}

bool fits(const Descriptor& entry, std::string_view artifact_type) {
  return is_manifest_media_type(entry.media_type) && (artifact_type.empty() || entry.artifact_type == artifact_type);
}

// Some servers answer an unknown API with a page for humans.
std::optional<ImageIndex> parse_page(const HttpResponse& response, std::string_view what) {
  try {
    return ImageIndex::parse(response.body, what);
  } catch (const Error& error) {
    log::debug("no referrers API: {}", error.what());
    return std::nullopt;
  }
}

bool lists(const json& index, const Digest& digest) {
  const auto text = digest.to_string();
  const auto& entries = index["manifests"];
  return std::any_of(entries.begin(), entries.end(),
                     [&](const json& entry) { return entry.is_object() && entry.value("digest", json()) == text; });
}

}  // namespace

struct Referrers::Answer {
  bool has_api = false;
  std::vector<Descriptor> found;
  std::string trouble;  // why it may have one all the same, "" if it has none
};

std::string referrers_tag(const Digest& subject) { return "sha256-" + subject.hex(); }

Referrers::Answer Referrers::ask_api(const Digest& subject, std::string_view artifact_type) {
  const auto what = endpoint_.name() + ": referrers of " + subject.to_string();
  Answer answer;
  HttpRequest request;
  request.max_body_bytes = kMaxManifestBytes;
  request.url = endpoint_.url("referrers/" + subject.to_string());
  const auto api_url = request.url;
  if (!artifact_type.empty()) request.url = *Url::parse(with_query(request.url.text, "artifactType", artifact_type));
  std::set<Digest> known;  // pages of a list that changes may overlap
  for (int page = 0; page < kMaxPages; ++page) {
    HttpResponse response;
    try {
      response = endpoint_.call(request, endpoint_.pull_scope(), what);
    } catch (const TemporaryError& error) {
      answer.trouble = error.what();
      return answer;
    } catch (const Error& error) {
      // Some deny what they do not know. If it is our login that is wrong, reading the tag says so.
      log::debug("no referrers API: {}", error.what());
      return answer;
    }
    if (response.status() != 200) return answer;
    const auto index = parse_page(response, what);
    if (!index) return answer;
    for (const auto& entry : index->manifests)
      if (fits(entry, artifact_type) && known.insert(entry.digest).second) answer.found.push_back(entry);
    if (answer.found.size() > kMaxIndexEntries) fail<Unsupported>("{}: more than {}", what, kMaxIndexEntries);
    const auto link = response.head.headers.find("Link");
    const auto next = link ? parse_next_link(*link) : std::nullopt;
    if (!next) {
      answer.has_api = true;
      return answer;
    }
    const auto target = request.url.resolve(*next);
    if (!target || !target->same_origin(api_url)) fail<Error>("{}: the next page is at another host", what);
    request.url = *target;
  }
  fail<Unsupported>("{}: more than {} pages", what, kMaxPages);
}

std::vector<Descriptor> Referrers::list_tag(const Digest& tagged, const Digest* part, std::string_view artifact_type) {
  std::vector<Descriptor> found;
  const auto tag = referrers_tag(tagged);
  const auto list = manifests_.find_tagged(tag);
  if (!list || !is_index_media_type(list->document.descriptor.media_type)) return found;
  for (const auto& entry : ImageIndex::parse(list->document.bytes, endpoint_.name() + ": tag " + tag).manifests)
    if (fits(entry, artifact_type) && is_about(entry, part)) found.push_back(entry);
  return found;
}

std::vector<Descriptor> Referrers::list(const Digest& subject, const Digest* whole, std::string_view artifact_type) {
  Answer answer;
  if (use_api_) answer = ask_api(subject, artifact_type);
  if (answer.has_api) return std::move(answer.found);
  auto found = list_tag(subject, nullptr, artifact_type);
  if (whole != nullptr) {
    // What is under a tag of the part's own was listed by an earlier version.
    for (auto& entry : list_tag(*whole, &subject, artifact_type))
      if (std::ranges::find(found, entry.digest, &Descriptor::digest) == found.end()) found.push_back(std::move(entry));
  }
  // "None" would be a guess while the registry only had trouble.
  if (found.empty() && !answer.trouble.empty()) throw TemporaryError(answer.trouble);
  return found;
}

void Referrers::add_part(const Digest& part, const Digest& whole, Descriptor referrer) {
  referrer.annotations[std::string(kPartAnnotation)] = part.to_string();
  add(whole, referrer);
}

void Referrers::add(const Digest& subject, const Descriptor& referrer) {
  const auto tag = referrers_tag(subject);
  const auto what = endpoint_.name() + ": tag " + tag;
  for (auto waits = Backoff(endpoint_.clock(), kMaxTagUpdates);; ++endpoint_.counters().retries) {
    const auto tagged = manifests_.find_tagged(tag);
    json index = {{"schemaVersion", 2}, {"mediaType", kOciIndexType}, {"manifests", json::array()}};
    if (tagged && is_index_media_type(tagged->document.descriptor.media_type)) {
      index = JsonValue::parse(tagged->document.bytes, what, {.bytes = kMaxManifestBytes}).raw();
      if (!index["manifests"].is_array()) index["manifests"] = json::array();
    }
    if (lists(index, referrer.digest)) return;
    index["manifests"].push_back(descriptor_to_json(referrer));
    const auto text = index.dump();
    if (text.size() > kMaxManifestBytes)
      fail<Unsupported>("{}: it would grow beyond {} bytes", what, kMaxManifestBytes);
    manifests_.put(as_bytes(text), kOciIndexType, tag, tagged ? tagged->etag : std::string());
    // The loop reads it again: it ends only when our entry is seen.
    const auto seen = manifests_.find_tagged(tag);
    if (seen && is_index_media_type(seen->document.descriptor.media_type) &&
        lists(JsonValue::parse(seen->document.bytes, what, {.bytes = kMaxManifestBytes}).raw(), referrer.digest))
      return;
    waits.wait(what + ": somebody else replaces it all the time");
  }
}

}  // namespace varve::oci::internal
