#include "core/oci/repository.h"

#include <algorithm>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/oci/image_view.h"
#include "core/oci/internal/credential_providers.h"
#include "core/oci/internal/http_client.h"
#include "core/oci/layout.h"
#include "core/oci/mirrored_repository.h"

namespace varve::oci {
namespace {

constexpr std::size_t kSendBytes = 1024 * 1024;

// A file that nobody sees and that is gone with its descriptor, sent when it is whole.
class ScratchDraft final : public BlobDraft {
 public:
  ScratchDraft(Repository& repository, const std::filesystem::path& dir)
      : repository_(repository), dir_(dir), fd_(open_file(dir, O_TMPFILE | O_RDWR, 0600)) {}

  void write(ByteView bytes) override {
    write_all(fd_.get(), bytes, dir_.string());
    written_ += bytes.size();
  }

  bool commit(const Descriptor& blob) override {
    if (written_ != blob.size)
      fail<CorruptData>("put {}: {} bytes of the {} announced", blob.digest.to_string(), written_, blob.size);
    bool sent = false;
    repository_.put_blob(blob, [&](ByteRange range, const ByteSink& sink) {
      sent = true;
      send(range, sink);
    });
    return sent;
  }

 private:
  void send(ByteRange range, const ByteSink& sink) const {
    Bytes buffer(std::min<std::uint64_t>(range.length, kSendBytes));
    while (range.length != 0) {
      const auto part = std::span(buffer).first(std::size_t(std::min<std::uint64_t>(range.length, buffer.size())));
      pread_exactly(fd_.get(), range.offset, part, dir_.string());
      sink(part);
      range.offset += part.size();
      range.length -= part.size();
    }
  }

  Repository& repository_;
  std::filesystem::path dir_;
  UniqueFd fd_;
  std::uint64_t written_ = 0;
};

}  // namespace

std::unique_ptr<BlobDraft> Repository::draft_blob(const std::filesystem::path& scratch_dir) {
  return std::make_unique<ScratchDraft>(*this, scratch_dir);
}

std::shared_ptr<Repository> open_repository(const Reference& reference, const RegistryOptions& options) {
  if (reference.kind == Reference::Kind::kLayout) return std::make_shared<LayoutRepository>(reference.layout_dir);
  if (reference.kind == Reference::Kind::kDockerArchive) return open_docker_archive(reference.path);
  if (reference.kind == Reference::Kind::kDirectory) return open_image_folder(reference.path);
  return std::make_shared<MirroredRepository>(reference, options);
}

void prepare_for_registries() noexcept {
  try {
    internal::HttpClient::prepare();
  } catch (const std::exception& error) {  // whoever asks a registry will be told
    log::debug("nothing is prepared for registries: {}", error.what());
  }
}

Bytes read_whole_blob(Repository& repository, const Descriptor& blob, std::uint64_t limit_bytes) {
  if (blob.size > limit_bytes)
    fail<Unsupported>("{} {}: {} bytes, the limit is {}", repository.name(), blob.digest.to_string(), blob.size,
                      limit_bytes);
  Bytes content;
  content.reserve(blob.size);
  repository.read_blob(blob, {.offset = 0, .length = blob.size}, [&](ByteView bytes) { append(content, bytes); });
  return content;
}

void put_bytes(Repository& repository, const Descriptor& blob, ByteView content) {
  repository.put_blob(
      blob, [&](ByteRange range, const ByteSink& sink) { sink(content.subspan(range.offset, range.length)); });
}

Descriptor put_bytes(Repository& repository, ByteView content, std::string_view media_type) {
  auto blob = descriptor_of(content, media_type);
  put_bytes(repository, blob, content);
  return blob;
}

std::shared_ptr<internal::CredentialProviders> open_credential_providers(const CredentialProviderSettings& settings) {
  constexpr std::chrono::seconds kPatienceOfKubelet{60};
  return std::make_shared<internal::CredentialProviders>(settings, Clock::system(), kPatienceOfKubelet);
}

}  // namespace varve::oci
