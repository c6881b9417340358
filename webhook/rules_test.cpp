#include "webhook/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::webhook {
namespace {

const std::string kLeast = "registry = \"registry.example:5000\"\n[[rule]]\nrepositories = [\"team/*\"]\n";

Settings parse(const std::string& toml, const std::filesystem::path& file = "/etc/varve/webhook.toml") {
  return parse_settings(toml, file, std::nullopt);
}

TEST(RulesTest, SayWhatIsDoneWithWhat) {
  const auto settings = parse(
      "registry = \"registry.example:5000\"\nworkers = 3\nqueue = \"q.db\"\n"
      "[[rule]]\nrepositories = [\"team/*\", \"base\"]\ntags = [\"v*\"]\nplatforms = [\"linux/amd64\"]\n"
      "sign = \"keys/ci.key\"\nlearn = true\nprevious = true\n[[rule]]\nrepositories = [\"**\"]\n");
  EXPECT_EQ(settings.workers, 3u);
  EXPECT_EQ(settings.queue, "/etc/varve/q.db");
  ASSERT_EQ(settings.rules.size(), 2u);
  EXPECT_EQ(settings.rules[0].key, "/etc/varve/keys/ci.key");
  EXPECT_TRUE(settings.rules[0].learn && settings.rules[0].previous);
  EXPECT_EQ(settings.rule_for("team/app", "v1"), settings.rules.data());
  EXPECT_EQ(settings.rule_for("base", "v1"), settings.rules.data());
  EXPECT_EQ(settings.rule_for("team/app", ""), &settings.rules[1]) << "pushed by digest";
  EXPECT_EQ(settings.rule_for("team/app/sub", "v1"), &settings.rules[1]);
  EXPECT_TRUE(settings.rules[0].has_platform(oci::Platform::parse("linux/x86_64")));
  EXPECT_FALSE(settings.rules[0].has_platform(oci::Platform::parse("linux/arm64")));
  EXPECT_EQ(parse(kLeast).rule_for("other/app", "v1"), nullptr);
  EXPECT_GT(parse(kLeast).address_connections, 0u);
  const auto proxied = parse("address-connections = 0\naddress-images = 0\n" + kLeast);
  EXPECT_EQ(proxied.address_connections + proxied.address_images, 0u);
  EXPECT_EQ(settings.reference("team/app").to_string(), "docker://registry.example:5000/team/app:latest");
}

TEST(RulesTest, NameTheLineOfWhatIsWrong) {
  const std::pair<std::string, std::string> wrong[] = {
      {"registry = 7\n", ":1"},
      {"registry = \"a/b\"\n[[rule]]\nrepositories=[\"a\"]\n", ":1"},
      {"registry = \"r.example\"\n", "[[rule]]"},
      {kLeast + "[[rule]]\nrepositories = []\n", ":4"},
      {kLeast + "[[rule]]\nrepository = [\"a\"]\n", "repository"},
      {kLeast + "platforms = [\"x/y/z/w\"]\n", "platforms"},
      {"workers = 0\n" + kLeast, "workers"},
      {"workers = \"3\"\n" + kLeast, "workers"},
      {"worker = 3\n" + kLeast, "worker"},
      {"address-connections = 65\n" + kLeast, "address-connections"},
      {"address-images = -1\n" + kLeast, "address-images"},
  };
  for (const auto& [toml, told] : wrong) {
    try {
      parse(toml);
      ADD_FAILURE() << toml;
    } catch (const CorruptData& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(told)) << toml;
    }
  }
}

TEST(RulesTest, ToBeReachedByOthersThereMustBeASecret) {
  const test::TempDir dir;
  EXPECT_THROW(parse("listen = \"0.0.0.0:8085\"\n" + kLeast), UsageError);
  EXPECT_THROW(parse_settings(kLeast, "/f", "0.0.0.0:8085"), UsageError);
  EXPECT_NO_THROW(parse("listen = \"127.0.0.1:8085\"\n" + kLeast));
  write_file_atomically(dir / "secret", as_bytes("Bearer abc\n"));
  EXPECT_EQ(parse("listen = \"0.0.0.0:1\"\nsecret-file = \"secret\"\n" + kLeast, dir / "f.toml").secret, "Bearer abc");
  write_file_atomically(dir / "secret", as_bytes(" \n"));
  EXPECT_THROW(parse("secret-file = \"secret\"\n" + kLeast, dir / "f.toml"), CorruptData);
  EXPECT_THROW(parse("secret-file = \"none\"\n" + kLeast, dir / "f.toml"), std::system_error);
}

}  // namespace
}  // namespace varve::webhook
