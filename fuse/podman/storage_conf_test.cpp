#include "fuse/podman/storage_conf.h"

#include <gmock/gmock.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::fuse::podman {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kStore = "/var/lib/varve/podman";

std::vector<std::filesystem::path> stores_after(const std::string& text) {
  return parse_storage_conf(add_image_store(text, "storage.conf", kStore), "storage.conf").image_stores;
}

TEST(StorageConfTest, SaysWherePodmanKeepsItsOwnAndWhereElseItLooks) {
  const auto conf = parse_storage_conf(
      "[storage]\ndriver = \"overlay\"\ngraphroot = \"/srv/graph\"\nrunroot = \"/run/graph\"\n"
      "[storage.options]\nadditionalimagestores = [\"/a\", \"/b/\",]\n[storage.options.overlay]\nmountopt = \"nodev\"\n",
      "storage.conf");
  EXPECT_EQ(conf.driver, "overlay");
  EXPECT_EQ(conf.graph_root, "/srv/graph");
  EXPECT_EQ(conf.run_root, "/run/graph");
  EXPECT_TRUE(conf.names("/a"));
  EXPECT_FALSE(conf.names(kStore));
  EXPECT_EQ(parse_storage_conf("", "storage.conf").graph_root, "/var/lib/containers/storage");
  EXPECT_THROW(parse_storage_conf("[storage]\ndriver = 5\n", "storage.conf"), CorruptData);
  EXPECT_THROW(parse_storage_conf("[storage\n", "storage.conf"), CorruptData);
}

TEST(StorageConfTest, TheStoreComesFirstWhateverTheFileLooksLike) {
  EXPECT_THAT(stores_after(""), ElementsAre(kStore));
  EXPECT_THAT(stores_after("[storage]\ndriver = \"overlay\""), ElementsAre(kStore));
  EXPECT_THAT(stores_after("[storage]\n[storage.options]"), ElementsAre(kStore));
  EXPECT_THAT(stores_after("[storage]\n[storage.options]\nsize = \"\"\n"), ElementsAre(kStore));
  EXPECT_THAT(stores_after("[storage.options]\nadditionalimagestores = [\n]\n"), ElementsAre(kStore));
  EXPECT_THAT(stores_after("[storage.options]\nadditionalimagestores = [ \"/a\" ]\n"), ElementsAre(kStore, "/a"));
  EXPECT_THAT(stores_after("[storage.options]\nadditionalimagestores = [\n  # ours\n  \"/a\",\n  \"/b\",\n]\n"),
              ElementsAre(kStore, "/a", "/b"));
  EXPECT_THAT(stores_after("[storage.options.overlay]\nmountopt = \"nodev\"\n"), ElementsAre(kStore));
  EXPECT_THAT(
      stores_after("# additionalimagestores = [\"/not\"]\n[storage.options]\n# x\nadditionalimagestores = []\n"),
      ElementsAre(kStore));
}

TEST(StorageConfTest, CommentsAndAllElseStay) {
  const std::string text = "# mine\n[storage]\ndriver = \"overlay\" # so\n\n[storage.options]\n# more\nsize = \"1\"\n";
  const auto changed = add_image_store(text, "storage.conf", kStore);
  EXPECT_THAT(changed, AllOf(HasSubstr("# mine\n"), HasSubstr("driver = \"overlay\" # so\n"), HasSubstr("# more\n")));
  EXPECT_EQ(changed.size(), text.size() + image_store_line(kStore).size() + 1);
}

TEST(StorageConfTest, WhatCannotBeChangedWithoutDoubtIsLeftWithTheLine) {
  for (const auto* text : {"storage = { driver = \"overlay\" }\n", "[storage]\noptions = { size = \"\" }\n",
                           "storage.options.size = \"\"\n", "[ storage . options ]\nsize = \"\"\n",
                           "x = \"[storage.options]\"\n[ storage.options ]\nsize = \"\"\n",
                           "[storage.options]\nadditionalimagestores = \"/one\"\n"}) {
    try {
      const auto changed = add_image_store(text, "storage.conf", kStore);
      EXPECT_THAT(parse_storage_conf(changed, "storage.conf").image_stores, ElementsAre(kStore)) << text;
    } catch (const Unsupported& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("storage.conf"), HasSubstr(image_store_line(kStore)))) << text;
    }
  }
  EXPECT_THROW(add_image_store("[storage.options]\nadditionalimagestores = \"/one\"\n", "storage.conf", kStore),
               Unsupported);
  EXPECT_THROW(add_image_store("[storage", "storage.conf", kStore), CorruptData);
}

TEST(StorageConfTest, PathsAreQuoted) {
  const std::filesystem::path odd = "/srv/a \"b\"\\c\n";
  EXPECT_THAT(parse_storage_conf(add_image_store("", "f", odd), "f").image_stores, ElementsAre(odd));
  EXPECT_THAT(parse_storage_conf(new_storage_conf(odd), "f").image_stores, ElementsAre(odd));
}

TEST(StorageConfTest, TheVariableNamesTheFile) {
  const test::TempDir dir;
  const auto file = dir / "mine.conf";
  const Variable environment = [&](const std::string& name) -> std::optional<std::string> {
    return name == "CONTAINERS_STORAGE_CONF" ? std::optional(file.string()) : std::nullopt;
  };
  EXPECT_EQ(find_storage_conf(environment).file, file);
  EXPECT_EQ(find_storage_conf(environment).text_of, "");
  write_file_atomically(file, as_bytes("# x\n"));
  EXPECT_EQ(find_storage_conf(environment).text_of, file);
  EXPECT_EQ(find_storage_conf(environment).text, "# x\n");
}

}  // namespace
}  // namespace varve::fuse::podman
