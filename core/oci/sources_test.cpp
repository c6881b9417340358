#include "core/oci/internal/sources.h"

#include <gmock/gmock.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/oci/internal/file_stamp.h"
#include "core/oci/internal/hosts_toml.h"
#include "core/oci/internal/registries_conf.h"
#include "testing/temp_dir.h"

namespace varve::oci::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SourcesTest : public testing::Test {
 protected:
  SourcesTest() {
    options_.mirrors.hosts_dirs = {dir_ / "containerd", dir_ / "docker"};
    options_.mirrors.registries_conf = dir_ / "registries.conf";
    put("registries.conf", "");
  }
  void put(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((dir_ / file).parent_path());
    write_file_atomically(dir_ / file, as_bytes(text));
  }
  std::vector<Source> find(const std::string& reference = "reg.example:5000/team/app:v1") {
    return find_sources(Reference::parse(reference), options_).sources;
  }
  std::vector<std::string> names(const std::string& reference = "reg.example:5000/team/app:v1") {
    std::vector<std::string> names;
    for (const auto& source : find(reference)) names.push_back(source.name());
    return names;
  }
  std::string refusal(const std::string& reference = "reg.example:5000/team/app:v1") {
    try {
      find(reference);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  test::TempDir dir_;
  RegistryOptions options_;
};

TEST_F(SourcesTest, HostsAreAskedInTheOrderOfTheFileAndTheServerLast) {
  put("containerd/reg.example_5000_/hosts.toml",
      "server = \"https://reg.example:5000\"\n"
      "[host.\"https://z.example\"]\n"
      "  capabilities = [\"pull\"]\n  dial_timeout = \"1.5s\"\n  ca = \"z.pem\"\n"
      "  client = [[\"z.cert\", \"/etc/z.key\"]]\n"
      "  [host.\"https://z.example\".header]\n    x-token = \"secret\"\n    x-list = [\"a\", \"b\"]\n"
      "[host.\"http://a.example:8080/hub/\"]\n"
      "[host.\"b.example/api/v2\"]\n  override_path = true\n");
  const auto sources = find();
  ASSERT_THAT(names(), ElementsAre("z.example/team/app", "a.example:8080/team/app", "b.example/team/app",
                                   "reg.example:5000/team/app"));
  EXPECT_EQ(sources[0].capabilities, (SourceCapabilities{.pull = true, .resolve = false, .referrers = false}));
  EXPECT_EQ(sources[0].dial_timeout, std::chrono::milliseconds(1500));
  EXPECT_THAT(sources[0].authorities, ElementsAre(dir_ / "containerd/reg.example_5000_/z.pem"));
  EXPECT_EQ(sources[0].client->second, "/etc/z.key");
  EXPECT_THAT(sources[0].headers, testing::UnorderedElementsAre("x-token: secret", "x-list: a", "x-list: b"));
  EXPECT_EQ(sources[0].names_host, "reg.example:5000");
  EXPECT_EQ(sources[1].root, "/hub/v2");
  EXPECT_EQ(sources[1].scheme, Scheme::kHttp);
  EXPECT_EQ(sources[1].capabilities, SourceCapabilities{});
  EXPECT_EQ(sources[2].root, "/api/v2");
  EXPECT_FALSE(sources[3].is_mirror);
  EXPECT_EQ(sources[3].names_host, "");
}

TEST_F(SourcesTest, TheServerMayBeAnotherSoThatTheRegistryIsNeverAsked) {
  put("containerd/reg.example:5000/hosts.toml", "server = \"https://only.example\"\nskip_verify = true\n");
  const auto sources = find();
  ASSERT_THAT(names(), ElementsAre("only.example/team/app"));
  EXPECT_TRUE(sources[0].is_mirror);
  EXPECT_FALSE(sources[0].verify_tls);
}

TEST_F(SourcesTest, DockerHubIsOneRegistryUnderTwoNames) {
  put("containerd/docker.io/hosts.toml", "server = \"https://registry-1.docker.io\"\n[host.\"https://m.example\"]\n");
  const auto sources = find("busybox");
  ASSERT_THAT(names("busybox"), ElementsAre("m.example/library/busybox", "docker.io/library/busybox"));
  EXPECT_EQ(sources[0].names_host, "docker.io");
  EXPECT_EQ(sources[1].connect_to, "registry-1.docker.io");
  EXPECT_FALSE(sources[1].is_mirror);
}

TEST_F(SourcesTest, TheFirstFolderCountsAndWithoutHostsTheNextPlace) {
  put("docker/_default/hosts.toml", "[host.\"https://docker.example\"]\n");
  EXPECT_THAT(names(), ElementsAre("docker.example/team/app", "reg.example:5000/team/app"));
  put("containerd/_default/hosts.toml", "[host.\"https://default.example\"]\n");
  EXPECT_THAT(names(), ElementsAre("default.example/team/app", "reg.example:5000/team/app"));
  put("containerd/reg.example:5000/hosts.toml", "[host.\"https://colon.example\"]\n");
  EXPECT_THAT(names(), ElementsAre("colon.example/team/app", "reg.example:5000/team/app"));
  put("containerd/reg.example_5000_/ca.crt", "certificates alone");
  EXPECT_THAT(names(), ElementsAre("docker.example/team/app", "reg.example:5000/team/app"));
  options_.mirrors.off = true;
  EXPECT_THAT(names(), ElementsAre("reg.example:5000/team/app"));
}

TEST_F(SourcesTest, AFileThatCannotBeReadIsAnErrorWithItsLine) {
  for (const auto& [text, line, words] :
       {std::tuple{"server = \"https://x\"\nbroken", ":2", "hosts.toml"},
        std::tuple{"[host.\"https://m\"]\ncapabilities = [\"pull\", \"fly\"]\n", ":2", "'fly'"},
        std::tuple{"[host.\"https://m\"]\nskip_verify = \"no\"\n", ":2", "true or false"},
        std::tuple{"[host.\"https://m\"]\ndial_timeout = \"fast\"\n", ":2", "200ms"},
        std::tuple{"[host.\"ftp://m\"]\n", ":1", "no URL"},
        std::tuple{"\n[host.\"https://m\".header]\n\"a b\" = \"c\"\n", ":3", "header"},
        std::tuple{"host = { \"https://m\" = {}, \"https://n\" = {} }\n", ":1", "one line"}}) {
    put("containerd/reg.example_5000_/hosts.toml", text);
    EXPECT_THAT(refusal(), testing::AllOf(HasSubstr(std::string("hosts.toml") + line), HasSubstr(words))) << text;
  }
}

TEST_F(SourcesTest, RegistriesConfRewritesTheLongestPrefix) {
  put("registries.conf",
      "unqualified-search-registries = [\"docker.io\"]\n"
      "[[registry]]\nlocation = \"reg.example:5000\"\n[[registry.mirror]]\nlocation = \"short.example\"\n"
      "[[registry]]\nprefix = \"reg.example:5000/team\"\nlocation = \"real.example/group\"\n"
      "[[registry.mirror]]\nlocation = \"127.0.0.1:5001/cache\"\ninsecure = true\n"
      "[[registry.mirror]]\nlocation = \"tags.example/t\"\npull-from-mirror = \"tag-only\"\n");
  const auto sources = find();
  ASSERT_THAT(names(), ElementsAre("127.0.0.1:5001/cache/app", "tags.example/t/app", "real.example/group/app"));
  EXPECT_FALSE(sources[0].verify_tls);
  EXPECT_EQ(sources[0].scheme, Scheme::kHttpsIfSpoken);
  EXPECT_EQ(sources[0].capabilities, (SourceCapabilities{.pull = true, .resolve = true, .referrers = false}));
  EXPECT_FALSE(sources[1].capabilities.pull);
  EXPECT_EQ(sources[2].names_host, "reg.example:5000");
  EXPECT_THAT(names("reg.example:5000/other/app"),
              ElementsAre("short.example/other/app", "reg.example:5000/other/app"));
  EXPECT_THAT(names("reg.example:5000/teams/app"),
              ElementsAre("short.example/teams/app", "reg.example:5000/teams/app"));
  EXPECT_THAT(names("reg.example/team/app"), ElementsAre("reg.example/team/app"));
}

TEST_F(SourcesTest, RegistriesConfBlocksAndDropInsTakeAPrefixOver) {
  put("registries.conf",
      "[[registry]]\nprefix = \"*.example\"\nblocked = true\n"
      "[[registry]]\nprefix = \"reg.example:5000\"\nmirror-by-digest-only = true\n"
      "[[registry.mirror]]\nlocation = \"first.example\"\n");
  EXPECT_THAT(refusal("sub.example/team/app"), HasSubstr("registries.conf:1: sub.example/team/app is blocked"));
  EXPECT_FALSE(find()[0].capabilities.resolve);
  put("registries.conf.d/50-mine.conf",
      "[[registry]]\nprefix = \"reg.example:5000\"\n[[registry.mirror]]\nlocation = \"second.example\"\n");
  EXPECT_THAT(names(), ElementsAre("second.example/team/app", "reg.example:5000/team/app"));
  EXPECT_TRUE(find()[0].capabilities.resolve);
}

TEST_F(SourcesTest, RegistriesConfOfVersionOneIsRefused) {
  put("registries.conf", "[registries.search]\nregistries = [\"docker.io\"]\n");
  EXPECT_THAT(refusal(), HasSubstr("version 1"));
  EXPECT_THAT(refusal(), HasSubstr("registries.conf:1"));
}

TEST_F(SourcesTest, OwnMirrorsBeatBothFiles) {
  put("containerd/_default/hosts.toml", "[host.\"https://default.example\"]\n");
  put("registries.conf", "[[registry]]\nprefix = \"reg.example:5000\"\nblocked = true\n");
  options_.mirrors.rules = {{.prefix = "reg.example:5000", .locations = {"far.example"}, .place = "varve.toml:1"},
                            {.prefix = "reg.example:5000/team",
                             .locations = {"http://10.0.0.5:8081/hub", "https://cache.example"},
                             .place = "varve.toml:4"}};
  const auto sources = find();
  ASSERT_THAT(names(), ElementsAre("10.0.0.5:8081/hub/app", "cache.example/app", "reg.example:5000/team/app"));
  EXPECT_EQ(sources[0].scheme, Scheme::kHttp);
  EXPECT_FALSE(sources[0].capabilities.resolve);
  EXPECT_THAT(refusal("reg.example:5000/other/app"), "nothing was thrown");
  EXPECT_THAT(names("reg.example:5000/other/app"), ElementsAre("far.example/other/app", "reg.example:5000/other/app"));
  options_.mirrors.rules.back().upstream = false;
  EXPECT_THAT(names(), ElementsAre("10.0.0.5:8081/hub/app", "cache.example/app"));
}

TEST_F(SourcesTest, ChangedFilesAreNoticed) {
  const auto reference = Reference::parse("reg.example:5000/team/app:v1");
  const auto looked = find_sources(reference, options_).looked;
  const auto before = stamps_of(looked);
  EXPECT_EQ(stamps_of(looked), before);
  put("docker/_default/hosts.toml", "");
  EXPECT_NE(stamps_of(looked), before);
}

}  // namespace
}  // namespace varve::oci::internal
