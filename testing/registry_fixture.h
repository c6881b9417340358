#pragma once
// What the tests of the registry client share: a fake registry, a clock that sleeps in no time, blobs with content that
// says where it came from.
#include <gmock/gmock.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/oci/manifest.h"
#include "core/oci/registry_repository.h"
#include "testing/fake_registry.h"
#include "testing/manual_clock.h"
#include "testing/refusal.h"
#include "testing/temp_dir.h"

namespace varve::oci {

class RegistryFixture : public testing::Test {
 protected:
  using Kind = test::FakeRegistry::Kind;
  using Auth = test::FakeRegistry::Auth;
  using Switches = test::FakeRegistry::Switches;
  using Break = test::FakeHttpResponse::Break;

  RegistryFixture() {
    options_.plain_http = true;  // no asking whether the fake speaks TLS
    options_.authfile = dir_ / "auth.json";
    write_file_atomically(options_.authfile, as_bytes("{}"));
  }

  std::unique_ptr<RegistryRepository> open(const std::string& repository = "team/app") {
    return std::make_unique<RegistryRepository>(Reference::parse(registry_.reference(repository)), options_, clock_);
  }
  void log_in(const std::string& user_and_password_base64) {
    write_file_atomically(options_.authfile, as_bytes("{\"auths\":{\"" + registry_.host() + "\":{\"auth\":\"" +
                                                      user_and_password_base64 + "\"}}}"));
  }

  static Bytes pattern(std::size_t size) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte((i * 2654435761u) >> 13);
    return bytes;
  }
  Descriptor add_blob(ByteView content) {
    Descriptor blob;
    blob.media_type = "application/octet-stream";
    blob.digest = registry_.add_blob("team/app", content);
    blob.size = content.size();
    return blob;
  }
  static Bytes read(Repository& repository, const Descriptor& blob, ByteRange range) {
    Bytes got;
    repository.read_blob(blob, range, [&](ByteView bytes) { append(got, bytes); });
    return got;
  }
  static Bytes cut(const Bytes& content, ByteRange range) {
    return to_bytes(ByteView(content).subspan(range.offset, range.length));
  }

  test::TempDir dir_;
  test::FakeRegistry registry_;
  test::ManualClock clock_;
  RegistryOptions options_;
};

}  // namespace varve::oci
