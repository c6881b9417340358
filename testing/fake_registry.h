#pragma once
// A registry in memory with switches for all that registries do wrong. Two servers on loopback: the registry itself,
// and a storage server that it can redirect blobs to and that also hands out tokens.
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/digest.h"
#include "testing/fake_http_server.h"

namespace varve::test {

class FakeRegistry {
 public:
  // What a request asks for; kAny where a switch shall not choose.
  enum class Kind { kAny, kBlob, kManifest, kReferrers, kUpload, kToken, kStorage };
  enum class Auth { kNone, kBasic, kToken };

  // Switches. Counts go down with each request that they hit; -1 means always.
  struct Switches {
    struct Failure {
      Kind kind = Kind::kAny;
      int status = 503;
      int count = 0;
      std::string retry_after = {};  // header value, "" for none
      std::string body = R"({"errors":[{"code":"FAKE","message":"told to fail"}]})";
    } failure;

    // Content of blobs (from the registry or from the storage).
    int ignore_ranges = 0;                                            // 200 and the whole blob
    int wrong_content_range = 0;                                      // the range begins one byte later than asked for
    int wrong_total = 0;                                              // Content-Range with another size
    int refuse_ranges = 0;                                            // 416
    int content_encoding = 0;                                         // claims to be gzip
    int without_length = 0;                                           // no Content-Length, ends by closing
    FakeHttpResponse::Break breaks = FakeHttpResponse::Break::kNone;  // how blob answers break,
    std::uint64_t break_after = 0;                                    // after how many bytes,
    int break_count = 0;                                              // and how many of them
    std::map<Digest, std::uint64_t> flipped_byte;                     // offset of a byte that is wrong in what is sent
    int flip_count = -1;                                              // how many answers have it

    bool redirect_blobs = false;  // 307 to the storage server with a signed URL
    int redirect_uses = -1;       // requests that one signed URL is good for
    int expired_status = 403;
    std::string redirect_to;  // redirect there instead, as it is

    Auth auth = Auth::kNone;
    std::string user = "user";
    std::string password = "pass:word";
    std::string identity_token;  // accepted by POST to the token server
    bool anonymous_tokens = false;
    int token_uses = -1;         // requests that one token is good for
    int token_expires_in = 300;  // what the token server says

    bool referrers_api = true;
    int referrers_status = 404;      // without the API
    std::string referrers_body;      // without the API: sent with status 200 if not empty
    std::size_t referrers_page = 0;  // entries of one page, 0 = all
    int lose_tag_updates = 0;        // PUTs of the fallback tag that somebody else overwrites at once

    std::uint64_t max_request_bytes = ~std::uint64_t(0);  // 413 above it
    std::uint64_t min_chunk_bytes = 0;
    int lose_chunks = 0;   // PATCHes that are stored up to the middle and answered with 500
    int lose_uploads = 0;  // PATCHes and PUTs answered with 404: the session is gone
    bool allow_mount = true;
    bool relative_locations = true;
  };

  struct Record {
    Kind kind = Kind::kAny;
    FakeHttpRequest request;  // without the body
    std::uint64_t body_bytes = 0;
    int status = 0;
  };

  FakeRegistry();
  ~FakeRegistry();

  std::string host() const { return registry_.host(); }
  std::string storage_host() const { return storage_.host(); }
  // "127.0.0.1:PORT/REPO:TAG"
  std::string reference(const std::string& repository, const std::string& tag = "latest") const {
    return host() + "/" + repository + ":" + tag;
  }

  Digest add_blob(const std::string& repository, ByteView content);
  // Listed among the referrers of its subject if it has one.
  Digest add_manifest(const std::string& repository, ByteView json, const std::string& media_type,
                      const std::string& tag = "");
  std::optional<Bytes> blob(const std::string& repository, const Digest& digest);
  std::optional<Bytes> manifest(const std::string& repository, const std::string& tag_or_digest);

  // Changes switches between requests.
  template <typename Change>
  void set(Change&& change) {
    const std::lock_guard lock(mutex_);
    change(switches_);
  }
  void fail_next(int status, int count = 1, Kind kind = Kind::kAny, std::string retry_after = {});
  // Blob answers wait until release_blobs(); wait_for_held() returns when `count` of them do.
  void hold_blobs();
  void release_blobs();
  void wait_for_held(int count);

  std::vector<Record> records();
  std::size_t count(Kind kind);         // requests of that kind, failed ones included
  std::uint64_t sent_bytes(Kind kind);  // bodies of the answers of that kind
  void forget_records();
  std::size_t connections() const { return registry_.connections(); }  // to the registry, that were made so far
  // Connections end, and are refused from now on.
  void stop();

 private:
  struct Manifest {
    std::shared_ptr<const Bytes> json;
    std::string media_type;
  };
  struct Repository {
    std::map<Digest, std::shared_ptr<const Bytes>> blobs;
    std::map<Digest, Manifest> manifests;
    std::map<std::string, Digest> tags;
  };
  struct Target {
    Kind kind = Kind::kAny;
    std::string repository;
    std::string rest;  // digest, tag or upload id
  };

  FakeHttpResponse handle(const FakeHttpRequest& request, bool at_storage);
  FakeHttpResponse respond(const FakeHttpRequest& request, const Target& target);
  Target target_of(const FakeHttpRequest& request, bool at_storage) const;
  std::optional<FakeHttpResponse> check_authorization(const FakeHttpRequest& request, const Target& target);
  FakeHttpResponse respond_token(const FakeHttpRequest& request);
  FakeHttpResponse respond_blob(const FakeHttpRequest& request, const Target& target);
  FakeHttpResponse respond_storage(const FakeHttpRequest& request);
  FakeHttpResponse blob_content(const FakeHttpRequest& request, const Digest& digest,
                                const std::shared_ptr<const Bytes>& content);
  FakeHttpResponse respond_manifest(const FakeHttpRequest& request, const Target& target);
  FakeHttpResponse put_manifest(const FakeHttpRequest& request, const Target& target);
  FakeHttpResponse respond_referrers(const FakeHttpRequest& request, const Target& target);
  FakeHttpResponse respond_upload(const FakeHttpRequest& request, const Target& target);
  FakeHttpResponse start_upload(const FakeHttpRequest& request, const Target& target);
  FakeHttpResponse finish_upload(const FakeHttpRequest& request, const Target& target);
  FakeHttpResponse upload_state(int status, const Target& target, const std::string& id);
  const Manifest* find_manifest(const std::string& repository, const std::string& reference);

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  Switches switches_;
  std::map<std::string, Repository> repositories_;
  std::map<std::string, Bytes> uploads_;
  std::map<std::string, int> tokens_;  // uses left
  struct SignedUrl {
    std::string repository;
    Digest digest;
    int uses = -1;
  };
  std::map<std::string, SignedUrl> signed_urls_;
  std::vector<Record> records_;
  std::map<Kind, std::uint64_t> sent_bytes_;
  int next_id_ = 1;
  bool holding_ = false;
  int held_ = 0;

  // Last: they call into all of the above until they are stopped.
  FakeHttpServer registry_;
  FakeHttpServer storage_;
};

}  // namespace varve::test
