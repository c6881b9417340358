#include "testing/fake_registry.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"

namespace varve::test {
namespace {

using nlohmann::json;
using Break = FakeHttpResponse::Break;

// Counts a switch down; true if it hits this time.
bool hits(int& count) {
  if (count == 0) return false;
  if (count > 0) --count;
  return true;
}

FakeHttpResponse error(int status, const std::string& code) {
  FakeHttpResponse response{.status = status};
  response.headers = {"Content-Type: application/json"};
  response.set_body(json({{"errors", {{{"code", code}, {"message", "the fake says " + code}}}}}).dump());
  return response;
}

std::string base64(std::string_view text) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string encoded;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    unsigned group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < text.size() ? static_cast<unsigned char>(text[i + j]) : 0);
    for (int j = 0; j < 4; ++j) encoded += i + std::size_t(j) > text.size() ? '=' : kDigits[group >> (18 - 6 * j) & 63];
  }
  return encoded;
}

}  // namespace

FakeRegistry::FakeRegistry()
    : registry_([this](const FakeHttpRequest& request) { return handle(request, false); }),
      storage_([this](const FakeHttpRequest& request) { return handle(request, true); }) {}

FakeRegistry::~FakeRegistry() {
  release_blobs();
  registry_.stop();
  storage_.stop();
}

Digest FakeRegistry::add_blob(const std::string& repository, ByteView content) {
  const auto digest = digest_of(content);
  const std::lock_guard lock(mutex_);
  repositories_[repository].blobs[digest] = std::make_shared<const Bytes>(to_bytes(content));
  return digest;
}

Digest FakeRegistry::add_manifest(const std::string& repository, ByteView content, const std::string& media_type,
                                  const std::string& tag) {
  const auto digest = digest_of(content);
  const std::lock_guard lock(mutex_);
  auto& place = repositories_[repository];
  place.manifests[digest] = {std::make_shared<const Bytes>(to_bytes(content)), media_type};
  if (!tag.empty()) place.tags[tag] = digest;
  return digest;
}

std::optional<Bytes> FakeRegistry::blob(const std::string& repository, const Digest& digest) {
  const std::lock_guard lock(mutex_);
  const auto& blobs = repositories_[repository].blobs;
  const auto found = blobs.find(digest);
  return found == blobs.end() ? std::nullopt : std::optional(*found->second);
}

std::optional<Bytes> FakeRegistry::manifest(const std::string& repository, const std::string& reference) {
  const std::lock_guard lock(mutex_);
  const auto* found = find_manifest(repository, reference);
  return found == nullptr ? std::nullopt : std::optional(*found->json);
}

void FakeRegistry::fail_next(int status, int count, Kind kind, std::string retry_after) {
  set([&](Switches& s) {
    s.failure = {.kind = kind, .status = status, .count = count, .retry_after = std::move(retry_after)};
  });
}

void FakeRegistry::hold_blobs() {
  const std::lock_guard lock(mutex_);
  holding_ = true;
}

void FakeRegistry::release_blobs() {
  {
    const std::lock_guard lock(mutex_);
    holding_ = false;
  }
  changed_.notify_all();
}

void FakeRegistry::wait_for_held(int count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return held_ >= count; });
}

std::vector<FakeRegistry::Record> FakeRegistry::records() {
  const std::lock_guard lock(mutex_);
  return records_;
}

std::size_t FakeRegistry::count(Kind kind) {
  const std::lock_guard lock(mutex_);
  return std::size_t(std::count_if(records_.begin(), records_.end(),
                                   [&](const Record& record) { return kind == Kind::kAny || record.kind == kind; }));
}

std::uint64_t FakeRegistry::sent_bytes(Kind kind) {
  const std::lock_guard lock(mutex_);
  return sent_bytes_[kind];
}

void FakeRegistry::stop() {
  registry_.stop();
  storage_.stop();
}

void FakeRegistry::forget_records() {
  const std::lock_guard lock(mutex_);
  records_.clear();
  sent_bytes_.clear();
}

FakeRegistry::Target FakeRegistry::target_of(const FakeHttpRequest& request, bool at_storage) const {
  if (at_storage)
    return {.kind = request.path == "/token" ? Kind::kToken : Kind::kStorage, .repository = {}, .rest = {}};
  struct Word {
    const char* text;
    Kind kind;
  };
  for (const auto& word : {Word{"/blobs/uploads/", Kind::kUpload}, Word{"/blobs/", Kind::kBlob},
                           Word{"/manifests/", Kind::kManifest}, Word{"/referrers/", Kind::kReferrers}}) {
    const auto at = request.path.find(word.text);
    if (!request.path.starts_with("/v2/") || at == std::string::npos || at < 4) continue;
    return {.kind = word.kind,
            .repository = request.path.substr(4, at - 4),
            .rest = request.path.substr(at + std::string(word.text).size())};
  }
  return {};
}

FakeHttpResponse FakeRegistry::handle(const FakeHttpRequest& request, bool at_storage) {
  const auto target = target_of(request, at_storage);
  std::unique_lock lock(mutex_);
  if (holding_ && (target.kind == Kind::kBlob || target.kind == Kind::kStorage)) {
    ++held_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !holding_; });
    --held_;
  }
  auto response = respond(request, target);
  Record record{.kind = target.kind, .request = request, .body_bytes = request.body.size(), .status = response.status};
  record.request.body.clear();
  records_.push_back(std::move(record));
  if (request.method != "HEAD" && response.body) {
    auto sent = response.part.length;
    if (response.breaks != Break::kNone) sent = std::min(sent, response.break_after);
    sent_bytes_[target.kind] += sent;
    sent_bytes_[Kind::kAny] += sent;
  }
  return response;
}

FakeHttpResponse FakeRegistry::respond(const FakeHttpRequest& request, const Target& target) {
  auto& failure = switches_.failure;
  if ((failure.kind == Kind::kAny || failure.kind == target.kind) && hits(failure.count)) {
    FakeHttpResponse response{.status = failure.status};
    if (!failure.retry_after.empty()) response.headers.push_back("Retry-After: " + failure.retry_after);
    response.set_body(failure.body);
    return response;
  }
  if (auto refused = check_authorization(request, target)) return std::move(*refused);
  if (request.body.size() > switches_.max_request_bytes) return error(413, "SIZE_INVALID");
  switch (target.kind) {
    case Kind::kToken:
      return respond_token(request);
    case Kind::kStorage:
      return respond_storage(request);
    case Kind::kBlob:
      return respond_blob(request, target);
    case Kind::kManifest:
      return respond_manifest(request, target);
    case Kind::kReferrers:
      return respond_referrers(request, target);
    case Kind::kUpload:
      return respond_upload(request, target);
    case Kind::kAny:
      break;
  }
  return request.path == "/v2/" ? FakeHttpResponse{} : error(404, "NAME_UNKNOWN");
}

std::optional<FakeHttpResponse> FakeRegistry::check_authorization(const FakeHttpRequest& request,
                                                                  const Target& target) {
  if (switches_.auth == Auth::kNone || target.kind == Kind::kToken || target.kind == Kind::kStorage)
    return std::nullopt;
  const auto given = request.header("authorization");
  if (switches_.auth == Auth::kBasic) {
    if (given == "Basic " + base64(switches_.user + ":" + switches_.password)) return std::nullopt;
    auto refused = error(401, "UNAUTHORIZED");
    refused.headers.push_back("WWW-Authenticate: Basic realm=\"fake, with a comma\"");
    return refused;
  }
  if (given.starts_with("Bearer ")) {
    const auto found = tokens_.find(given.substr(7));
    if (found != tokens_.end() && hits(found->second)) return std::nullopt;
  }
  auto refused = error(401, "UNAUTHORIZED");
  const auto actions = request.method == "GET" || request.method == "HEAD" ? "pull" : "pull,push";
  refused.headers.push_back("WWW-Authenticate: Bearer realm=\"http://" + storage_.host() +
                            "/token\",service=\"fake\",scope=\"repository:" + target.repository + ":" + actions + "\"");
  return refused;
}

FakeHttpResponse FakeRegistry::respond_token(const FakeHttpRequest& request) {
  bool allowed = switches_.anonymous_tokens;
  if (request.method == "POST") {
    const auto form = std::string(as_text(request.body));
    allowed = !switches_.identity_token.empty() && form.find("grant_type=refresh_token") != std::string::npos &&
              form.find("refresh_token=" + switches_.identity_token) != std::string::npos;
  } else if (const auto given = request.header("authorization"); !given.empty()) {
    allowed = given == "Basic " + base64(switches_.user + ":" + switches_.password);
  }
  if (!allowed) return error(401, "UNAUTHORIZED");
  const auto token = "token-" + std::to_string(next_id_++);
  tokens_[token] = switches_.token_uses;
  FakeHttpResponse response;
  response.set_body(json({{"token", token}, {"expires_in", switches_.token_expires_in}}).dump());
  return response;
}

FakeHttpResponse FakeRegistry::respond_blob(const FakeHttpRequest& request, const Target& target) {
  const auto digest = Digest::try_parse(target.rest);
  const auto& blobs = repositories_[target.repository].blobs;
  const auto found = digest ? blobs.find(*digest) : blobs.end();
  if (found == blobs.end()) return error(404, "BLOB_UNKNOWN");
  if (switches_.redirect_blobs || !switches_.redirect_to.empty()) {
    FakeHttpResponse response{.status = 307};
    if (!switches_.redirect_to.empty()) {
      response.headers.push_back("Location: " + switches_.redirect_to);
      return response;
    }
    const auto signature = std::to_string(next_id_++);
    signed_urls_[signature] = {.repository = target.repository, .digest = *digest, .uses = switches_.redirect_uses};
    response.headers.push_back("Location: http://" + storage_.host() + "/data?signature=" + signature);
    return response;
  }
  return blob_content(request, *digest, found->second);
}

FakeHttpResponse FakeRegistry::respond_storage(const FakeHttpRequest& request) {
  // Like real ones: two ways to prove who one is are one too many.
  if (!request.header("authorization").empty()) return error(400, "InvalidArgument");
  if (request.method != "GET") return error(403, "SignatureDoesNotMatch");
  const auto signature = request.query.find("signature");
  const auto found = signature == request.query.end() ? signed_urls_.end() : signed_urls_.find(signature->second);
  if (found == signed_urls_.end() || !hits(found->second.uses))
    return error(switches_.expired_status, "ExpiredRequest");
  return blob_content(request, found->second.digest,
                      repositories_[found->second.repository].blobs.at(found->second.digest));
}

FakeHttpResponse FakeRegistry::blob_content(const FakeHttpRequest& request, const Digest& digest,
                                            const std::shared_ptr<const Bytes>& content) {
  FakeHttpResponse response;
  response.body = content;
  response.part = {.offset = 0, .length = content->size()};
  if (request.method == "HEAD") return response;
  if (const auto flip = switches_.flipped_byte.find(digest);
      flip != switches_.flipped_byte.end() && hits(switches_.flip_count)) {
    auto wrong = *content;
    wrong.at(flip->second) ^= std::byte{1};
    response.body = std::make_shared<const Bytes>(std::move(wrong));
  }
  const auto range = request.header("range");
  unsigned long long first = 0;
  unsigned long long last = 0;
  const bool has_range = std::sscanf(range.c_str(), "bytes=%llu-%llu", &first, &last) == 2;
  if (has_range && (hits(switches_.refuse_ranges) || first >= content->size())) {
    response = error(416, "RANGE_INVALID");
    response.headers.push_back("Content-Range: bytes */" + std::to_string(content->size()));
    return response;
  }
  if (has_range && !hits(switches_.ignore_ranges)) {
    last = std::min<unsigned long long>(last, content->size() - 1);
    if (hits(switches_.wrong_content_range)) ++first, ++last;
    const auto total = content->size() + (hits(switches_.wrong_total) ? 1 : 0);
    response.status = 206;
    response.part = {.offset = first, .length = std::min<std::uint64_t>(last + 1, content->size()) - first};
    response.headers.push_back("Content-Range: bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
                               std::to_string(total));
  }
  if (hits(switches_.content_encoding)) response.headers.push_back("Content-Encoding: gzip");
  if (hits(switches_.without_length)) response.no_length = true;
  if (switches_.breaks != Break::kNone && hits(switches_.break_count)) {
    response.breaks = switches_.breaks;
    response.break_after = switches_.break_after;
  }
  return response;
}

const FakeRegistry::Manifest* FakeRegistry::find_manifest(const std::string& repository, const std::string& reference) {
  auto& place = repositories_[repository];
  auto digest = Digest::try_parse(reference);
  if (const auto tag = place.tags.find(reference); tag != place.tags.end()) digest = tag->second;
  const auto found = digest ? place.manifests.find(*digest) : place.manifests.end();
  return found == place.manifests.end() ? nullptr : &found->second;
}

FakeHttpResponse FakeRegistry::respond_manifest(const FakeHttpRequest& request, const Target& target) {
  if (request.method == "PUT") return put_manifest(request, target);
  const auto* found = find_manifest(target.repository, target.rest);
  if (found == nullptr) return error(404, "MANIFEST_UNKNOWN");
  FakeHttpResponse response;
  const auto digest = digest_of(*found->json);
  response.headers = {"Content-Type: " + found->media_type, "Docker-Content-Digest: " + digest.to_string(),
                      "ETag: \"" + digest.to_string() + "\""};
  response.body = found->json;
  response.part = {.offset = 0, .length = found->json->size()};
  if (const auto flip = switches_.flipped_byte.find(digest);
      flip != switches_.flipped_byte.end() && request.method == "GET" && hits(switches_.flip_count)) {
    auto wrong = *found->json;
    wrong.at(flip->second) ^= std::byte{1};
    response.set_body(std::move(wrong));
  }
  return response;
}

FakeHttpResponse FakeRegistry::put_manifest(const FakeHttpRequest& request, const Target& target) {
  const auto digest = digest_of(request.body);
  auto& place = repositories_[target.repository];
  if (const auto wanted = request.header("if-match"); !wanted.empty()) {
    const auto* current = find_manifest(target.repository, target.rest);
    if (current == nullptr || "\"" + digest_of(*current->json).to_string() + "\"" != wanted)
      return error(412, "MANIFEST_INVALID");
  }
  const auto document = json::parse(as_text(request.body), nullptr, false);
  if (!document.is_object()) return error(400, "MANIFEST_INVALID");
  const bool is_fallback_tag = target.rest.starts_with("sha256-");
  if (is_fallback_tag && hits(switches_.lose_tag_updates))
    return FakeHttpResponse{.status = 201};  // as if overwritten at once
  place.manifests[digest] = {std::make_shared<const Bytes>(request.body), request.header("content-type")};
  if (!Digest::try_parse(target.rest)) place.tags[target.rest] = digest;
  FakeHttpResponse response{.status = 201};
  response.headers = {"Docker-Content-Digest: " + digest.to_string()};
  if (switches_.referrers_api && document.contains("subject"))
    response.headers.push_back("OCI-Subject: " + document["subject"]["digest"].get<std::string>());
  return response;
}

FakeHttpResponse FakeRegistry::respond_referrers(const FakeHttpRequest& request, const Target& target) {
  if (!switches_.referrers_api) {
    if (switches_.referrers_body.empty()) return error(switches_.referrers_status, "NAME_UNKNOWN");
    FakeHttpResponse response;
    response.headers = {"Content-Type: text/html"};
    response.set_body(switches_.referrers_body);
    return response;
  }
  json entries = json::array();
  const auto type = request.query.find("artifactType");
  for (const auto& [digest, manifest] : repositories_[target.repository].manifests) {
    const auto document = json::parse(as_text(*manifest.json), nullptr, false);
    if (!document.is_object() || !document.contains("subject") || document["subject"]["digest"] != target.rest)
      continue;
    json entry = {{"mediaType", manifest.media_type},
                  {"digest", digest.to_string()},
                  {"size", manifest.json->size()},
                  {"artifactType", document.value("artifactType", "")}};
    if (document.contains("annotations")) entry["annotations"] = document["annotations"];
    if (type == request.query.end() || entry["artifactType"] == type->second) entries.push_back(std::move(entry));
  }
  const auto from = request.query.contains("last") ? std::stoull(request.query.at("last")) : 0;
  const auto page = switches_.referrers_page == 0 ? entries.size() : switches_.referrers_page;
  json list = json::array();
  for (std::size_t i = from; i < std::min<std::size_t>(entries.size(), from + page); ++i) list.push_back(entries[i]);
  FakeHttpResponse response;
  response.headers = {"Content-Type: application/vnd.oci.image.index.v1+json"};
  if (from + page < entries.size())
    response.headers.push_back("Link: <" + request.path + "?last=" + std::to_string(from + page) +
                               (type == request.query.end() ? "" : "&artifactType=" + type->second) +
                               ">; rel=\"next\"");
  response.set_body(
      json({{"schemaVersion", 2}, {"mediaType", "application/vnd.oci.image.index.v1+json"}, {"manifests", list}})
          .dump());
  return response;
}

FakeHttpResponse FakeRegistry::upload_state(int status, const Target& target, const std::string& id) {
  FakeHttpResponse response{.status = status};
  const auto path = "/v2/" + target.repository + "/blobs/uploads/" + id + "?state=" + std::to_string(next_id_++);
  response.headers = {"Location: " + (switches_.relative_locations ? path : "http://" + registry_.host() + path)};
  const auto size = uploads_[id].size();
  response.headers.push_back("Range: 0-" + std::to_string(size == 0 ? 0 : size - 1));
  if (switches_.min_chunk_bytes != 0)
    response.headers.push_back("OCI-Chunk-Min-Length: " + std::to_string(switches_.min_chunk_bytes));
  return response;
}

FakeHttpResponse FakeRegistry::start_upload(const FakeHttpRequest& request, const Target& target) {
  if (const auto mount = request.query.find("mount"); mount != request.query.end() && switches_.allow_mount) {
    const auto digest = Digest::try_parse(mount->second);
    const auto& source = repositories_[request.query.contains("from") ? request.query.at("from") : ""].blobs;
    if (const auto found = digest ? source.find(*digest) : source.end(); found != source.end()) {
      repositories_[target.repository].blobs[*digest] = found->second;
      return FakeHttpResponse{.status = 201};
    }
  }
  const auto id = "upload-" + std::to_string(next_id_++);
  uploads_[id];
  return upload_state(202, target, id);
}

FakeHttpResponse FakeRegistry::finish_upload(const FakeHttpRequest& request, const Target& target) {
  auto& upload = uploads_[target.rest];
  append(upload, request.body);
  const auto digest = digest_of(upload);
  if (!request.query.contains("digest") || request.query.at("digest") != digest.to_string())
    return error(400, "DIGEST_INVALID");
  repositories_[target.repository].blobs[digest] = std::make_shared<const Bytes>(std::move(upload));
  uploads_.erase(target.rest);
  return FakeHttpResponse{.status = 201};
}

FakeHttpResponse FakeRegistry::respond_upload(const FakeHttpRequest& request, const Target& target) {
  if (request.method == "POST") return start_upload(request, target);
  if (!uploads_.contains(target.rest)) return error(404, "BLOB_UPLOAD_UNKNOWN");
  if (request.method == "GET") return upload_state(204, target, target.rest);
  if (hits(switches_.lose_uploads)) {
    uploads_.erase(target.rest);
    return error(404, "BLOB_UPLOAD_UNKNOWN");
  }
  if (request.method == "PUT") return finish_upload(request, target);
  auto& upload = uploads_[target.rest];
  unsigned long long first = 0;
  unsigned long long last = 0;
  if (std::sscanf(request.header("content-range").c_str(), "%llu-%llu", &first, &last) != 2 || first != upload.size() ||
      last - first + 1 != request.body.size())
    return error(416, "RANGE_INVALID");
  if (hits(switches_.lose_chunks)) {
    append(upload, ByteView(request.body).first(request.body.size() / 2));
    return error(500, "UNKNOWN");
  }
  append(upload, request.body);
  return upload_state(202, target, target.rest);
}

}  // namespace varve::test
