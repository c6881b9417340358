#include "core/oci/reference.h"

#include <gmock/gmock.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::oci {
namespace {

const std::string kHex(64, 'a');

TEST(ReferenceTest, ReadsRegistryReferences) {
  struct Case {
    const char* text;
    const char* host;
    const char* repository;
    const char* selector;
  };
  for (const auto& c :
       {Case{"debian", "docker.io", "library/debian", "latest"}, Case{"team/app:1.0", "docker.io", "team/app", "1.0"},
        Case{"docker.io/debian:12", "docker.io", "library/debian", "12"},
        Case{"index.docker.io/debian", "docker.io", "library/debian", "latest"},
        Case{"localhost/app", "localhost", "app", "latest"},
        Case{"localhost:5000/a/b/c:t", "localhost:5000", "a/b/c", "t"},
        Case{"docker://registry.example/app__x/y-z--w", "registry.example", "app__x/y-z--w", "latest"},
        Case{"[::1]:5000/app:v1", "[::1]:5000", "app", "v1"},
        Case{"127.0.0.1:80/app", "127.0.0.1:80", "app", "latest"}}) {
    const auto reference = Reference::parse(c.text);
    EXPECT_EQ(reference.kind, Reference::Kind::kRegistry) << c.text;
    EXPECT_EQ(reference.host, c.host) << c.text;
    EXPECT_EQ(reference.repository, c.repository) << c.text;
    EXPECT_EQ(reference.selector(), c.selector) << c.text;
    EXPECT_EQ(Reference::parse(reference.to_string()).to_string(), reference.to_string());
  }
}

TEST(ReferenceTest, DigestWinsOverTag) {
  const auto reference = Reference::parse("host.example/app:1.0@sha256:" + kHex);
  EXPECT_EQ(reference.tag, "1.0");
  EXPECT_EQ(reference.selector(), "sha256:" + kHex);
  EXPECT_FALSE(Reference::parse("host.example/app@sha256:" + kHex).tag.has_value());
}

TEST(ReferenceTest, ReadsLayoutFolders) {
  const auto plain = Reference::parse("oci:/srv/image/");
  EXPECT_EQ(plain.kind, Reference::Kind::kLayout);
  EXPECT_EQ(plain.layout_dir, "/srv/image");
  EXPECT_EQ(plain.selector(), "");
  EXPECT_EQ(Reference::parse("oci:/srv/image:v1").selector(), "v1");
  EXPECT_EQ(Reference::parse("oci:/srv/we:ird/image").layout_dir, "/srv/we:ird/image");
  EXPECT_EQ(Reference::parse("oci:/srv/image@sha256:" + kHex).selector(), "sha256:" + kHex);
  EXPECT_EQ(Reference::parse("oci:here").layout_dir, std::filesystem::current_path() / "here");
  for (const auto* text : {"oci:/srv/image", "oci:/srv/image:v1", "oci:/srv/image:v1/"})
    EXPECT_EQ(Reference::parse(text).to_string(), text);
}

TEST(ReferenceTest, ALayoutFolderThatExistsMayBeFollowedByAWholeImageName) {
  const test::TempDir dir;
  write_file_atomically(dir / "oci-layout", as_bytes("{}"));
  const auto reference = Reference::parse("oci:" + dir.path().string() + ":registry.example:5000/app:v1");
  EXPECT_EQ(reference.layout_dir, dir.path());
  EXPECT_EQ(reference.selector(), "registry.example:5000/app:v1");
  EXPECT_EQ(Reference::parse(reference.to_string()).selector(), reference.selector());
}

TEST(ReferenceTest, AForgottenOciIsGuessed) {
  const test::TempDir dir;
  const auto folder = dir.path().string();
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      Reference::parse(text);
      return {};
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(folder + ":v1").find("did you mean"), std::string::npos);
  write_file_atomically(dir / "oci-layout", as_bytes("{}"));
  for (const auto& text : {folder, folder + ":v1", folder + "@sha256:" + std::string(64, 'a')})
    EXPECT_NE(refusal(text).find("did you mean oci:" + text + "?"), std::string::npos) << refusal(text);
}

TEST(ReferenceTest, RefusesWhatIsNoReference) {
  for (const auto& text : {std::string(""),
                           std::string("oci:"),
                           std::string("oci::tag"),
                           std::string("oci:/a:"),
                           "oci:/a@sha256:" + std::string(63, 'a'),
                           std::string("App"),
                           std::string("host.example/App"),
                           std::string("host.example/"),
                           std::string("host.example/a//b"),
                           std::string("a/b:"),
                           std::string("a:t@sha256:12"),
                           "app@sha256:" + std::string(64, 'A'),
                           std::string("https://host.example/app"),
                           std::string("host.example:0/app"),
                           std::string("host.example:99999/app"),
                           std::string("host.example:5000x/app"),
                           std::string("-host.example/app"),
                           std::string("a..b"),
                           std::string("a___b"),
                           std::string("a-"),
                           std::string("[::1/app"),
                           std::string("docker-archive:"),
                           std::string("docker-archive:f.tar:UPPER"),
                           std::string("dir:"),
                           std::string("docker-daemon:app"),
                           std::string("user:pass@host.example/app"),
                           "app:" + std::string(129, 't'),
                           "host.example/" + std::string(250, 'a'),
                           std::string("a\0b", 3)})
    EXPECT_THROW(Reference::parse(text), UsageError) << text;
}

}  // namespace
}  // namespace varve::oci
