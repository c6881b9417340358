#include "core/oci/discarding_repository.h"

#include "core/base/errors.h"

namespace varve::oci {
namespace {

void check_size(const Descriptor& blob, std::uint64_t bytes) {
  if (bytes != blob.size)
    fail<CorruptData>("blob {}: {} bytes of the {} announced", blob.digest.to_string(), bytes, blob.size);
}

class DiscardedDraft final : public BlobDraft {
 public:
  explicit DiscardedDraft(DiscardingRepository& repository) : repository_(repository) {}
  void write(ByteView bytes) override { written_ += bytes.size(); }
  bool commit(const Descriptor& blob) override {
    check_size(blob, written_);
    if (repository_.has_blob(blob)) return false;
    repository_.put_blob(blob, {});
    return true;
  }

 private:
  DiscardingRepository& repository_;
  std::uint64_t written_ = 0;
};

}  // namespace

DiscardingRepository::DiscardingRepository(std::set<Digest> has) : has_(std::in_place, std::move(has)) {}

Document DiscardingRepository::manifest(std::string_view digest) {
  auto manifests = manifests_.lock();
  const auto found = manifests->find(Digest::parse(digest));
  if (found == manifests->end()) fail<NotFound>("manifest {} was not put here", digest);
  return found->second;
}

void DiscardingRepository::read_blob(const Descriptor& blob, ByteRange, const ByteSink&) {
  fail<NotFound>("blob {}: nothing is kept here", blob.digest.to_string());
}

bool DiscardingRepository::has_blob(const Descriptor& blob) { return has_.lock()->contains(blob.digest); }

void DiscardingRepository::put_blob(const Descriptor& blob, const ByteSource& content) {
  if (has_blob(blob)) return;
  if (content) {
    std::uint64_t bytes = 0;
    content({.offset = 0, .length = blob.size}, [&](ByteView piece) { bytes += piece.size(); });
    check_size(blob, bytes);
  }
  has_.lock()->insert(blob.digest);
}

std::unique_ptr<BlobDraft> DiscardingRepository::draft_blob(const std::filesystem::path&) {
  return std::make_unique<DiscardedDraft>(*this);
}

Descriptor DiscardingRepository::put_manifest(ByteView json, std::string_view media_type, std::string_view) {
  const Document document{.descriptor = descriptor_of(json, media_type), .bytes = to_bytes(json)};
  manifests_.lock()->insert_or_assign(document.descriptor.digest, document);
  return document.descriptor;
}

}  // namespace varve::oci
