#include "fuse/daemon/handover.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "fuse/control/control_protocol.h"

namespace varve::fuse {
namespace {

using nlohmann::json;

Handover with_part_and_hold() {
  const auto index = digest_of("index");
  Handover record;
  record.images.push_back({.digest = digest_of("image"),
                           .spec = {.reference = "docker://r.example/a:1", .platform = {}, .registry = {}},
                           .index = index,
                           .layers = 2,
                           .tree = digest_of("tree")});
  record.mounts.push_back({.dir = "/run/varve/images/a-first-2",
                           .index = name_of_tree(index, 2),
                           .connection = "varve-1",
                           .mode = MountMode::kKernel,
                           .why = {},
                           .shared = true});
  record.holds.push_back({.name = "pod", .mount = "/run/varve/images/a-first-2"});
  return record;
}

TEST(Handover, TreesOfLowestLayersAndHoldsCross) {
  const auto record = with_part_and_hold();
  const auto arrived = decode_handover(encode_handover(record));
  ASSERT_EQ(arrived.images.size(), 1u);
  EXPECT_EQ(arrived.images[0].layers, 2u);
  EXPECT_EQ(arrived.images[0].tree, digest_of("tree"));
  ASSERT_EQ(arrived.holds.size(), 1u);
  EXPECT_EQ(arrived.holds[0].name, "pod");
  EXPECT_EQ(arrived.holds[0].mount, record.mounts[0].dir);
  EXPECT_EQ(encode_handover(arrived), encode_handover(record));
}

TEST(Handover, WhatAMountLackedAtFirstCrosses) {
  auto record = with_part_and_hold();
  EXPECT_FALSE(decode_handover(encode_handover(record)).mounts.at(0).missing_at_first);
  record.mounts[0].missing_at_first = 0;
  EXPECT_EQ(decode_handover(encode_handover(record)).mounts.at(0).missing_at_first, 0u);
  record.mounts[0].missing_at_first = 4'856'000'000;
  EXPECT_EQ(decode_handover(encode_handover(record)).mounts.at(0).missing_at_first, 4'856'000'000u);
  auto document = json::parse(encode_handover(record));
  document["mounts"][0].erase("missing_at_first");  // as an earlier daemon wrote it
  EXPECT_FALSE(decode_handover(document.dump()).mounts.at(0).missing_at_first);
  for (const auto& wrong : {json(-1), json("1"), json(true), json::array()}) {
    document["mounts"][0]["missing_at_first"] = wrong;
    EXPECT_THROW(decode_handover(document.dump()), CorruptData) << wrong.dump();
  }
}

TEST(Handover, TheRecordOfTheFormatBeforeIsRead) {
  auto document = json::parse(encode_handover(with_part_and_hold()));
  document["format"] = 4;
  document.erase("holds");
  document["images"][0].erase("layers");
  document["images"][0].erase("tree");
  const auto arrived = decode_handover(document.dump());
  EXPECT_EQ(arrived.images.at(0).layers, 0u);
  EXPECT_FALSE(arrived.images[0].tree);
  EXPECT_TRUE(arrived.holds.empty());
  for (const int unknown : {3, 6}) {
    document["format"] = unknown;
    EXPECT_THROW(decode_handover(document.dump()), Unsupported) << unknown;
  }
}

TEST(Handover, EachTreeOfAnIndexHasANameOfItsOwn) {
  const auto index = digest_of("index");
  EXPECT_EQ(name_of_tree(index, 0), index);
  EXPECT_NE(name_of_tree(index, 1), name_of_tree(index, 2));
  EXPECT_NE(name_of_tree(index, 1), name_of_tree(digest_of("other"), 1));
}

TEST(Handover, AHoldOfNoFullPathIsRefused) {
  auto document = json::parse(encode_handover(with_part_and_hold()));
  document["holds"][0]["mount"] = "images/a";
  EXPECT_THROW(decode_handover(document.dump()), CorruptData);
}

}  // namespace
}  // namespace varve::fuse
