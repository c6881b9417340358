#include "core/oci/internal/blob_reader.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/oci/registry_repository.h"

namespace varve::oci::internal {
namespace {

// Whole blobs up to this size are checked before the first byte is handed on, so that a wrong one can be fetched again.
constexpr std::uint64_t kBufferedBytes = 8 * 1024 * 1024;
// A range that begins later than this is asked for a second time before the bytes in front of it are fetched for
// nothing.
constexpr std::uint64_t kWorthAskingAgain = 1024 * 1024;
constexpr std::chrono::milliseconds kBeforeAskingAgain{500};
// Progress that makes the count of failed attempts begin anew.
constexpr std::uint64_t kRealProgress = 64 * 1024;
constexpr int kMaxRelocations = 2;   // of one blob without progress
constexpr int kMaxWrongAnswers = 2;  // ranges that were not the ones asked for

// The server sent the whole blob although a late range was asked for; perhaps a cache that is still being filled.
struct RangeIgnored {};

// The answer is not what was asked for; it may be at the second attempt.
class WrongAnswer : public CorruptData {
 public:
  using CorruptData::CorruptData;
};

}  // namespace

struct BlobReader::Transfer {
  const Descriptor& blob;
  std::uint64_t next;  // the first byte that is still to come
  std::uint64_t end;
  const ByteSink& sink;
  std::string what;
  bool strict = false;
  bool fresh_connection = false;

  std::uint64_t skip = 0;         // bytes of the current answer in front of `next`
  bool answer_ends_here = false;  // the current answer holds nothing behind `end`
  bool asked_again = false;
  int relocations = 0;
  int wrong_answers = 0;

  bool is_whole_request() const { return next == 0 && end == blob.size; }
};

void BlobReader::read(const Descriptor& blob, ByteRange range, const ByteSink& sink, WholeForRange policy) {
  const auto what = fmt::format("{}: blob {}", endpoint_.name(), blob.digest.to_string());
  if (!range.fits_in(blob.size))
    fail<CorruptData>("{}: range {}+{} lies outside its {} bytes", what, range.offset, range.length, blob.size);
  const bool whole = range.length == blob.size;
  const auto transfer_with = [&](const ByteSink& into) {
    return Transfer{.blob = blob,
                    .next = range.offset,
                    .end = range.end(),
                    .sink = into,
                    .what = what,
                    .strict = policy == WholeForRange::kRefuse};
  };
  if (!whole) {
    auto transfer = transfer_with(sink);
    return read_all(transfer);
  }
  if (blob.size > kBufferedBytes) {
    Sha256 hash;
    const ByteSink hashing = [&](ByteView bytes) {
      hash.update(bytes);
      sink(bytes);
    };
    auto transfer = transfer_with(hashing);
    read_all(transfer);
    if (hash.finish() != blob.digest) fail<CorruptData>("{}: the content does not match the digest", what);
    return;
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    Bytes content;
    content.reserve(blob.size);
    const ByteSink buffering = [&](ByteView bytes) { append(content, bytes); };
    auto transfer = transfer_with(buffering);
    transfer.fresh_connection = attempt > 0;
    read_all(transfer);
    if (digest_of(content) == blob.digest) {
      if (!content.empty()) sink(content);
      return;
    }
    locations_.forget(blob.digest, locations_.begin(blob.digest).url());
    ++endpoint_.counters().retries;
  }
  fail<CorruptData>("{}: the content does not match the digest", what);
}

void BlobReader::read_all(Transfer& transfer) {
  auto waits = endpoint_.backoff();
  auto counted_from = transfer.next;
  while (transfer.next < transfer.end) {
    try {
      if (!attempt(transfer, waits)) continue;
      if (transfer.next == transfer.end) return;
      if (transfer.next - counted_from >= kRealProgress) waits.reset();
      counted_from = transfer.next;
      waits.wait(fmt::format("{}: the answer ended at {}, {} bytes too early", transfer.what, transfer.next,
                             transfer.end - transfer.next));
    } catch (const TransportError& error) {
      if (transfer.next == transfer.end) return;
      if (transfer.next - counted_from >= kRealProgress) waits.reset();
      counted_from = transfer.next;
      waits.wait(fmt::format("{} at {}: {}", transfer.what, transfer.next, error.what()), std::nullopt,
                 error.no_answer());
    } catch (const WrongAnswer& error) {
      if (++transfer.wrong_answers >= kMaxWrongAnswers || transfer.strict) throw CorruptData(error.what());
      waits.wait(error.what());
    } catch (const RangeIgnored&) {
      transfer.asked_again = true;
      endpoint_.clock().sleep_for(kBeforeAskingAgain);
    }
    ++endpoint_.counters().retries;
  }
}

// Asks once, at the place that is known to have the bytes. True: an answer with content came, complete or not. False:
// ask again at once, at another place.
bool BlobReader::attempt(Transfer& transfer, Backoff& waits) {
  auto lease = locations_.begin(transfer.blob.digest);
  HttpRequest request;
  request.url = lease.url() ? *lease.url() : endpoint_.url("blobs/" + transfer.blob.digest.to_string());
  request.fresh_connection = transfer.fresh_connection;
  if (!transfer.is_whole_request())
    request.headers.push_back(fmt::format("Range: bytes={}-{}", transfer.next, transfer.end - 1));
  bool redirected = lease.url().has_value();
  request.on_head = [&](const HttpHead& head) {
    check_head(transfer, head);
    // From here on the others need not wait: the address has proved itself.
    redirected ? lease.found(request.url) : lease.registry_answers_itself();
  };
  request.on_body = [&](ByteView bytes) { return deliver(transfer, bytes); };

  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    const auto response = endpoint_.send(request, endpoint_.pull_scope());
    const int status = response.status();
    if (is_success(status)) return true;
    if (is_redirect_status(status)) {
      request.url = endpoint_.redirect_target(response, request.url, transfer.what);
      redirected = true;
      continue;
    }
    if (is_temporary_status(status)) {
      waits.wait(fmt::format("{}: {}", transfer.what, describe(response)), retry_after_of(response.head.headers));
      ++endpoint_.counters().retries;
      return false;
    }
    const bool may_have_expired = status == 400 || status == 401 || status == 403 || status == 404 || status == 410;
    if (redirected && may_have_expired && transfer.relocations < kMaxRelocations) {
      ++transfer.relocations;
      ++endpoint_.counters().relocations;
      locations_.forget(transfer.blob.digest, lease.url());
      return false;
    }
    if (status == 416) {
      const auto header = response.head.headers.find("Content-Range");
      const auto total = header ? parse_unsatisfied_range(*header) : std::nullopt;
      fail<CorruptData>("{}: the registry has {} bytes of it, not {}: range at {} refused", transfer.what,
                        total ? std::to_string(*total) : "fewer", transfer.blob.size, transfer.next);
    }
    fail_response(response, transfer.what);
  }
  fail<Error>("{}: more than {} redirects", transfer.what, kMaxRedirects);
}

void BlobReader::check_head(Transfer& transfer, const HttpHead& head) {
  if (const auto encoding = head.headers.find("Content-Encoding");
      encoding && !encoding->empty() && !equal_ignoring_case(*encoding, "identity"))
    fail<Error>("{}: it was encoded on the way (Content-Encoding: {}), although identity was asked for", transfer.what,
                encoding->substr(0, 40));
  transfer.skip = 0;
  if (head.status == 206) {
    const auto header = head.headers.find("Content-Range");
    const auto range = header ? parse_content_range(*header) : std::nullopt;
    if (!range) throw WrongAnswer(fmt::format("{}: a part without a valid Content-Range", transfer.what));
    if (range->first != transfer.next || range->last >= transfer.end)
      throw WrongAnswer(fmt::format("{}: bytes {}-{} came where {}-{} were asked for", transfer.what, range->first,
                                    range->last, transfer.next, transfer.end - 1));
    if (range->total && *range->total != transfer.blob.size)
      fail<CorruptData>("{}: the registry has {} bytes of it, the manifest says {}", transfer.what, *range->total,
                        transfer.blob.size);
    transfer.answer_ends_here = true;
    serves_ranges_ = true;
    return;
  }
  if (head.status != 200)
    throw WrongAnswer(fmt::format("{}: status {} instead of content", transfer.what, head.status));
  const auto length_header = head.headers.find("Content-Length");
  if (const auto length = length_header ? parse_decimal(*length_header) : std::nullopt;
      length && *length != transfer.blob.size)
    fail<CorruptData>("{}: the registry has {} bytes of it, the manifest says {}", transfer.what, *length,
                      transfer.blob.size);
  transfer.answer_ends_here = transfer.end == transfer.blob.size;
  if (transfer.is_whole_request()) return;
  ++endpoint_.counters().ranges_ignored;
  if (transfer.strict) fail<RangesNotServed>("{}: the whole blob came for a range of it", transfer.what);
  if (transfer.next > kWorthAskingAgain && serves_ranges_ && !transfer.asked_again) throw RangeIgnored();
  serves_ranges_ = false;
  transfer.skip = transfer.next;
}

bool BlobReader::deliver(Transfer& transfer, ByteView bytes) {
  endpoint_.counters().received_bytes += bytes.size();
  const auto skipped = std::min<std::uint64_t>(transfer.skip, bytes.size());
  transfer.skip -= skipped;
  endpoint_.counters().skipped_bytes += skipped;
  bytes = bytes.subspan(skipped);
  const auto wanted = bytes.first(std::min<std::uint64_t>(bytes.size(), transfer.end - transfer.next));
  if (!wanted.empty()) {
    transfer.sink(wanted);
    transfer.next += wanted.size();
    transfer.relocations = 0;
  }
  // An answer that ends with the range is read to its end, so that the connection can be used again.
  return wanted.size() == bytes.size() && (transfer.next < transfer.end || transfer.answer_ends_here);
}

}  // namespace varve::oci::internal
