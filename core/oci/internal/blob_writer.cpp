#include "core/oci/internal/blob_writer.h"

#include <algorithm>

#include "core/base/errors.h"

namespace varve::oci::internal {
namespace {

constexpr std::uint64_t kFallbackChunkBytes = 32 * 1024 * 1024;  // proxies in front of registries take 100 MB
constexpr std::uint64_t kSmallestChunkBytes = 1024 * 1024;
constexpr std::uint64_t kMaxChunkBytes = std::uint64_t(1) << 32;
constexpr std::size_t kPieceBytes = 1024 * 1024;
constexpr std::string_view kOctets = "Content-Type: application/octet-stream";

// The upload has to begin anew; its session is lost or it was refused in this form.
struct UploadLost {
  std::string reason;
  std::optional<std::chrono::seconds> retry_after;
};

// The chunk did not arrive; where the registry stands must be asked.
struct ChunkLost {
  std::string reason;
  std::optional<std::chrono::seconds> retry_after;
};

}  // namespace

// What is being pushed, hashed as it goes over the wire for the first time. The last byte is not handed out unless the
// digest is right, so a wrong blob is never completed.
class BlobWriter::Body {
 public:
  Body(const Descriptor& blob, const ByteSource& content, std::string what)
      : blob_(blob), content_(content), what_(std::move(what)) {}
  const Descriptor& blob() const { return blob_; }

  std::size_t read(std::uint64_t offset, std::span<std::byte> into) {
    if (offset < piece_offset_ || offset - piece_offset_ >= piece_.size()) load(offset);
    const auto from = std::size_t(offset - piece_offset_);
    const auto length = std::min(into.size(), piece_.size() - from);
    std::copy_n(piece_.begin() + std::ptrdiff_t(from), length, into.begin());
    return length;
  }

 private:
  void load(std::uint64_t offset) {
    const auto wanted = std::min<std::uint64_t>(kPieceBytes, blob_.size - offset);
    piece_.clear();
    piece_offset_ = offset;
    content_({.offset = offset, .length = wanted}, [&](ByteView bytes) {
      if (bytes.size() > wanted - piece_.size())
        fail<CorruptData>("{}: the source gave more than was asked for at {}", what_, offset);
      append(piece_, bytes);
    });
    if (piece_.size() != wanted)
      fail<CorruptData>("{}: the source ended at {} of {} bytes", what_, offset + piece_.size(), blob_.size);
    if (hashed_ >= offset && hashed_ < offset + wanted) {
      hash_.update(ByteView(piece_).subspan(std::size_t(hashed_ - offset)));
      hashed_ = offset + wanted;
      if (hashed_ == blob_.size && hash_.finish() != blob_.digest)
        fail<CorruptData>("{}: the content does not match the digest", what_);
    }
  }

  const Descriptor& blob_;
  const ByteSource& content_;
  std::string what_;
  Bytes piece_;
  std::uint64_t piece_offset_ = 0;
  Sha256 hash_;
  std::uint64_t hashed_ = 0;
};

bool BlobWriter::exists(const Descriptor& blob, const std::string& scopes) {
  const auto what = endpoint_.name() + ": blob " + blob.digest.to_string();
  HttpRequest request;
  request.method = "HEAD";
  request.url = endpoint_.url("blobs/" + blob.digest.to_string());
  // Storage behind a redirect refuses HEAD where the signature is for GET; that the registry redirects says enough.
  request.follow_redirects = false;
  const auto response = endpoint_.call(request, scopes, what);
  if (is_success(response.status()) || is_redirect_status(response.status())) return true;
  if (response.status() == 404) return false;
  fail_response(response, what);
}

Url BlobWriter::next_location(const HttpResponse& response, const Url& from, const std::string& what) {
  const auto location = response.head.headers.find("Location");
  if (!location) fail<Error>("{}: the registry does not say where to upload to", what);
  auto target = from.resolve(*location);
  if (!target) fail<Error>("{}: the registry names an invalid place to upload to", what);
  if (from.scheme == "https" && target->scheme != "https")
    fail<Error>("{}: the registry asks to upload without TLS ({}); refused", what, target->shown());
  return std::move(*target);
}

std::optional<BlobWriter::Upload> BlobWriter::start(const Descriptor& blob, const std::string& mount_from,
                                                    const std::string& what) {
  HttpRequest request;
  request.method = "POST";
  request.url = endpoint_.url("blobs/uploads/");
  request.has_body = true;
  request.headers = {std::string(kOctets)};
  HttpResponse response;
  if (!mount_from.empty()) {
    auto mount = request;
    mount.url =
        *Url::parse(with_query(with_query(request.url.text, "mount", blob.digest.to_string()), "from", mount_from));
    response = endpoint_.call(mount, endpoint_.push_scope() + " repository:" + mount_from + ":pull", what);
    if (response.status() == 201) return std::nullopt;
  }
  // 202 answers a mount that was not possible with an ordinary upload.
  if (response.status() != 202) response = endpoint_.call(request, endpoint_.push_scope(), what);
  if (response.status() != 202) fail_response(response, what);
  Upload upload{.location = next_location(response, request.url, what)};
  if (const auto header = response.head.headers.find("OCI-Chunk-Min-Length"))
    upload.min_chunk_bytes = std::min(parse_decimal(*header).value_or(0), kMaxChunkBytes);
  return upload;
}

void BlobWriter::put_whole(const Upload& upload, Body& body, const std::string& what) {
  HttpRequest request;
  request.method = "PUT";
  request.headers = {std::string(kOctets)};
  request.url = *Url::parse(with_query(upload.location.text, "digest", body.blob().digest.to_string()));
  request.has_body = true;
  request.body_bytes = body.blob().size;
  request.read_body = [&](std::uint64_t offset, std::span<std::byte> into) { return body.read(offset, into); };
  const auto response = endpoint_.send(request, endpoint_.push_scope());
  const int status = response.status();
  if (is_success(status) && status != 202) return;
  if (status == 413 && chunk_bytes_ == 0) {
    chunk_bytes_ = kFallbackChunkBytes;
    throw UploadLost{.reason = what + ": too large for one request", .retry_after = {}};
  }
  // 404: the session is gone. DIGEST_INVALID: it was damaged on the way, for what we sent was right.
  const auto text = describe(response);
  if (is_temporary_status(status) || status == 404 ||
      (status == 400 && text.find("DIGEST_INVALID") != std::string::npos))
    throw UploadLost{.reason = what + ": " + text, .retry_after = retry_after_of(response.head.headers)};
  fail_response(response, what);
}

void BlobWriter::put_chunk(Upload& upload, Body& body, std::uint64_t length, const std::string& what) {
  HttpRequest request;
  request.method = "PATCH";
  request.url = upload.location;
  request.headers = {std::string(kOctets),
                     fmt::format("Content-Range: {}-{}", upload.offset, upload.offset + length - 1)};
  request.has_body = true;
  request.body_bytes = length;
  const auto begin = upload.offset;
  request.read_body = [&body, begin](std::uint64_t offset, std::span<std::byte> into) {
    return body.read(begin + offset, into);
  };
  const auto response = endpoint_.send(request, endpoint_.push_scope());
  const int status = response.status();
  if (is_success(status)) {
    const auto header = response.head.headers.find("Range");
    const auto last = header ? parse_upload_range(*header) : std::nullopt;
    const auto arrived = last ? *last + 1 : begin + length;
    if (arrived <= begin || arrived > begin + length)
      throw ChunkLost{.reason = what + ": the registry lost count", .retry_after = {}};
    upload.offset = arrived;
    upload.location = next_location(response, upload.location, what);
    return;
  }
  if (status == 404) throw UploadLost{.reason = what + ": " + describe(response), .retry_after = {}};
  if (status == 416 || is_temporary_status(status))
    throw ChunkLost{.reason = what + ": " + describe(response), .retry_after = retry_after_of(response.head.headers)};
  if (status == 413 && length > kSmallestChunkBytes && length / 2 >= upload.min_chunk_bytes) {
    chunk_bytes_ = length / 2;
    throw ChunkLost{.reason = what + ": too large for one request", .retry_after = {}};
  }
  fail_response(response, what);
}

void BlobWriter::ask_progress(Upload& upload, const std::string& what) {
  HttpRequest request;
  request.url = upload.location;
  const auto response = endpoint_.call(request, endpoint_.push_scope(), what);
  if (!is_success(response.status())) throw UploadLost{.reason = what + ": " + describe(response), .retry_after = {}};
  const auto header = response.head.headers.find("Range");
  const auto last = header ? parse_upload_range(*header) : std::nullopt;
  // An empty upload has no last byte: registries leave the header out or send "0-0", which is told apart by asking what
  // we sent.
  upload.offset = !last || (*last == 0 && upload.offset == 0) ? 0 : *last + 1;
  if (response.head.headers.find("Location")) upload.location = next_location(response, upload.location, what);
}

void BlobWriter::put_chunks(Upload upload, Body& body, Backoff& waits, const std::string& what) {
  const auto size = body.blob().size;
  while (upload.offset < size) {
    const auto chunk = std::max(chunk_bytes_.load(), upload.min_chunk_bytes);
    const auto before = upload.offset;
    std::optional<ChunkLost> lost;
    try {
      put_chunk(upload, body, std::min(chunk, size - upload.offset), what);
    } catch (ChunkLost& failure) {
      lost = std::move(failure);
    } catch (const TransportError& error) {
      lost = ChunkLost{.reason = fmt::format("{}: {}", what, error.what()), .retry_after = {}};
    }
    if (!lost) {
      waits.reset();
      continue;
    }
    ++endpoint_.counters().retries;
    waits.wait(lost->reason, lost->retry_after);
    ask_progress(upload, what);
    if (upload.offset > size || upload.offset < before)
      throw UploadLost{.reason = what + ": the registry lost count", .retry_after = {}};
  }
  finish(upload, body.blob(), what);
}

void BlobWriter::finish(const Upload& upload, const Descriptor& blob, const std::string& what) {
  HttpRequest request;
  request.method = "PUT";
  request.headers = {std::string(kOctets)};
  request.url = *Url::parse(with_query(upload.location.text, "digest", blob.digest.to_string()));
  request.has_body = true;
  const auto response = endpoint_.call(request, endpoint_.push_scope(), what);
  if (is_success(response.status()) && response.status() != 202) return;
  // The answer to an attempt that worked may have been lost.
  if (response.status() == 404 && exists(blob, endpoint_.push_scope())) return;
  if (response.status() == 404 || response.status() == 416)
    throw UploadLost{.reason = what + ": " + describe(response), .retry_after = {}};
  fail_response(response, what);
}

void BlobWriter::put(const Descriptor& blob, const ByteSource& content, const std::string& mount_from) {
  if (exists(blob, endpoint_.push_scope())) return;
  const auto what = endpoint_.name() + ": push of blob " + blob.digest.to_string();
  Body body(blob, content, what);
  for (auto waits = endpoint_.backoff();; ++endpoint_.counters().retries) {
    std::string reason;
    std::optional<std::chrono::seconds> retry_after;
    try {
      const auto upload = start(blob, mount_from, what);
      if (!upload) return;  // mounted
      const auto chunk = std::max(chunk_bytes_.load(), upload->min_chunk_bytes);
      if (chunk_bytes_ == 0 || blob.size <= chunk) return put_whole(*upload, body, what);
      return put_chunks(*upload, body, waits, what);
    } catch (const UploadLost& lost) {
      reason = lost.reason;
      retry_after = lost.retry_after;
    } catch (const TransportError& error) {
      reason = fmt::format("{}: {}", what, error.what());
      // A proxy that finds the body too large often just closes the connection.
      if (chunk_bytes_ == 0 && blob.size > kFallbackChunkBytes && waits.failures() > 0)
        chunk_bytes_ = kFallbackChunkBytes;
    }
    waits.wait(reason, retry_after);
  }
}

}  // namespace varve::oci::internal
