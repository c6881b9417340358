#include "core/oci/internal/host_certificates.h"

#include <gmock/gmock.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/oci/repository.h"
#include "testing/refusal.h"
#include "testing/temp_dir.h"

namespace varve::oci::internal {
namespace {

constexpr const char* kHost = "registry.example:5000";

class HostCertificatesTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((dir_ / path).parent_path());
    write_file_atomically(dir_ / path, as_bytes(text));
  }
  static std::string pem(const std::string& name) { return "-----BEGIN CERTIFICATE-----\n" + name + "\n"; }
  HostCertificates find() { return find_host_certificates({dir_ / "home", dir_ / "etc", dir_ / "docker"}, kHost); }
  std::string refusal() {
    return test::refusal_of<UsageError>([&] { find(); });
  }

  test::TempDir dir_;
};

TEST_F(HostCertificatesTest, TheUsersFolderComesBeforeThoseOfTheMachine) {
  EXPECT_THAT(certificate_places("/home/ann"), testing::ElementsAre("/home/ann/.config/containers/certs.d",
                                                                    "/etc/containers/certs.d", "/etc/docker/certs.d"));
  EXPECT_THAT(certificate_places(""), testing::SizeIs(2));
  EXPECT_EQ(find().authorities, "");
  write("docker/registry.example:5000/ca.crt", pem("docker's"));
  write("etc/registry.example/ca.crt", pem("another port's"));
  EXPECT_THAT(find().authorities, testing::HasSubstr("docker's"));
  write("etc/registry.example:5000/b.crt", pem("second"));
  write("etc/registry.example:5000/a.crt", pem("first"));
  EXPECT_EQ(find().authorities, pem("first") + "\n" + pem("second") + "\n") << "the first folder alone, all of it";
  std::filesystem::create_directories(dir_ / "home" / kHost);
  EXPECT_EQ(find().authorities, "") << "an empty folder takes the machine's away, as with podman";
}

TEST_F(HostCertificatesTest, AClientsCertificateNeedsItsKey) {
  write("etc/registry.example:5000/client.cert", pem("client"));
  EXPECT_THAT(refusal(), testing::AllOf(testing::HasSubstr("client.cert"), testing::HasSubstr("client.key")));
  write("etc/registry.example:5000/client.key", "key");
  const auto found = find();
  EXPECT_EQ(found.certificate, dir_ / "etc" / kHost / "client.cert");
  EXPECT_EQ(found.key, dir_ / "etc" / kHost / "client.key");
  write("etc/registry.example:5000/other.key", "key");
  EXPECT_THAT(refusal(), testing::HasSubstr("other.cert"));
}

TEST_F(HostCertificatesTest, AnAuthorityThatIsNoneIsNamed) {
  write("etc/registry.example:5000/ca.crt", "not a certificate");
  EXPECT_THAT(refusal(), testing::HasSubstr("ca.crt"));
  EXPECT_THROW(read_authorities(dir_ / "none.pem"), UsageError);
  RegistryOptions options;
  options.ca_file = dir_ / "none.pem";
  EXPECT_THROW(open_repository(Reference::parse("registry.example/app"), options), UsageError);
}

}  // namespace
}  // namespace varve::oci::internal
