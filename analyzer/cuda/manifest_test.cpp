#include "analyzer/cuda/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/base/errors.h"
#include "testing/elf_tree.h"

namespace varve::cuda {
namespace {

using test::FakeTree;
using test::with_runpath;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kCudnn = "usr/lib/python3.11/site-packages/nvidia/cudnn/lib/";
constexpr std::string_view kConfig =
    R"({"architecture":"amd64","os":"linux","created":"2026-01-01T00:00:00Z","config":{"Env":["PATH=/usr/bin",)"
    R"("LD_LIBRARY_PATH=/usr/local/nvidia/lib64:","NVIDIA_VISIBLE_DEVICES=all"],)"
    R"("Labels":{"a":"b"},"Entrypoint":["/usr/bin/env"],"ExposedPorts":{"80/tcp":{}}},"rootfs":{"type":"layers",)"
    R"("diff_ids":["sha256:1"]},"history":[{"created_by":"x"}]})";

// An image with cuDNN's parts as they lie in a wheel, a toolkit library with its links, and loader configuration.
FakeTree image() {
  FakeTree made;
  for (const auto* part :
       {"", "_graph", "_ops", "_cnn", "_adv", "_engines_precompiled", "_engines_runtime_compiled", "_heuristic"})
    made.library(kCudnn + "libcudnn" + part + ".so.9",
                 *part == '\0' ? std::vector<std::string>{} : std::vector<std::string>{"libz.so.1"},
                 with_runpath("$ORIGIN"));
  made.library("usr/local/cuda-12.4/lib/libcusolver.so.11.6.1", {"libcusparse.so.12"}, with_runpath("$ORIGIN"));
  made.link("usr/local/cuda-12.4/lib/libcusolver.so.11", "libcusolver.so.11.6.1");
  made.link("usr/local/cuda-12.4/lib/libcusolver.so", "libcusolver.so.11");
  made.library("usr/local/cuda-12.4/lib/libcusparse.so.12");
  made.library("usr/lib/libz.so.1");
  made.file("etc/ld.so.conf.d/nvidia.conf", "/usr/local/nvidia/lib64\n");
  return made;
}

Manifest manifest_of(const FakeTree& made, std::string_view config = kConfig) {
  return make_manifest(made.tree, "", built_in_rules(), as_bytes(config), digest_of(config));
}

std::vector<std::string> faults(const std::function<void(FakeTree&)>& change) {
  auto changed = image();
  change(changed);
  return compare(manifest_of(image()), manifest_of(changed));
}

TEST(CudaManifest, SurvivesJsonAndIsEqualToItself) {
  auto made = image();
  made.file("usr/local/cuda-12.4/odd \\ \xFF name", "x").xattrs["user.a"] = "b";
  const auto manifest = manifest_of(made);
  const auto json = to_json(manifest);
  const auto back = parse_manifest(json, "m");
  EXPECT_EQ(back.files, manifest.files);
  EXPECT_EQ(back.resolved, manifest.resolved);
  EXPECT_EQ(back.unresolved, manifest.unresolved);
  EXPECT_EQ(back.config, manifest.config);
  EXPECT_EQ(back.image, manifest.image);
  EXPECT_EQ(to_json(back), json);
  EXPECT_THAT(compare(manifest, back), IsEmpty());
  EXPECT_EQ(back.rules, built_in_rules().digest);
  EXPECT_FALSE(back.missing.empty()) << "no NVRTC in this image";
}

// Each fault that a rewrite could make, found by name.
TEST(CudaManifest, AMissingVersionedLinkIsNamed) {
  const auto lines = faults([](auto& made) { made.tree.entries.erase("usr/local/cuda-12.4/lib/libcusolver.so.11"); });
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines[0], HasSubstr("usr/local/cuda-12.4/lib/libcusolver.so.11: not there any more"));
}

TEST(CudaManifest, AStrippedLibraryIsNamed) {
  EXPECT_THAT(faults([](auto& made) {
                made.tree.entries.at("usr/local/cuda-12.4/lib/libcusparse.so.12").content_digest =
                    digest_of(std::string_view("stripped"));
              }),
              ElementsAre(HasSubstr("usr/local/cuda-12.4/lib/libcusparse.so.12: sha256 " +
                                    digest_of(std::string_view("stripped")).hex())));
}

TEST(CudaManifest, AChangedRunpathIsNamedTwice) {
  const auto lines = faults([](auto& made) {
    made.library("usr/local/cuda-12.4/lib/libcusolver.so.11.6.1", {"libcusparse.so.12"}, with_runpath("/elsewhere"));
    made.tree.entries.at("usr/local/cuda-12.4/lib/libcusolver.so.11.6.1").content_digest =
        digest_of(std::string_view("patched"));
  });
  EXPECT_THAT(
      lines,
      ElementsAre(
          HasSubstr("libcusolver.so.11.6.1: sha256"),
          "usr/local/cuda-12.4/lib/libcusolver.so.11.6.1 needs libcusparse.so.12: finds "
          "beside:usr/local/cuda-12.4/lib/libcusparse.so.12 instead of usr/local/cuda-12.4/lib/libcusparse.so.12"));
}

TEST(CudaManifest, DroppedEnginesAreNamed) {
  EXPECT_THAT(faults([](auto& made) { made.tree.entries.erase(kCudnn + "libcudnn_engines_precompiled.so.9"); }),
              ElementsAre(HasSubstr(kCudnn + "libcudnn_engines_precompiled.so.9: not there any more (R2 ")));
}

TEST(CudaManifest, ALostLibraryOfTheSystemIsNamedWithWhoNeedsIt) {
  const auto lines = faults([](auto& made) { made.tree.entries.erase("usr/lib/libz.so.1"); });
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("usr/lib/libz.so.1: not there any more")));
  EXPECT_THAT(lines, ::testing::Contains(kCudnn + "libcudnn_adv.so.9 needs libz.so.1, which is not found any more"));
}

TEST(CudaManifest, EditedConfigIsNamedByVariable) {
  const auto edited = [](std::string_view from, std::string_view to) {
    std::string config(kConfig);
    config.replace(config.find(from), from.size(), to);
    return compare(manifest_of(image()), manifest_of(image(), config));
  };
  EXPECT_THAT(edited("lib64:\"", "lib64\""),
              ElementsAre(R"(Env[1]: "LD_LIBRARY_PATH=/usr/local/nvidia/lib64" instead of )"
                          R"("LD_LIBRARY_PATH=/usr/local/nvidia/lib64:")"));
  EXPECT_THAT(edited(R"(,"NVIDIA_VISIBLE_DEVICES=all")", ""),
              ElementsAre(R"(Env[2]: nothing instead of "NVIDIA_VISIBLE_DEVICES=all")"));
  EXPECT_THAT(edited(R"("a":"b")", R"("a":"c")"), ElementsAre(R"(Labels.a: "c" instead of "b")"));
  EXPECT_THAT(edited(R"("ExposedPorts":{"80/tcp":{}})", R"("User":"me")"),
              ElementsAre(HasSubstr("ExposedPorts: absent"), R"(User: "me" instead of absent)"));
  EXPECT_THAT(edited(R"(["sha256:1"])", R"(["sha256:2","sha256:3"])"), IsEmpty()) << "layers may be others";
  EXPECT_THAT(edited(R"("a":"b")", R"("a":"b","dev.varve.from":"x")"), IsEmpty()) << "our own labels";
}

TEST(CudaManifest, AnEditedLoaderConfigurationAModeAndAnXattrAreNamed) {
  EXPECT_THAT(faults([](auto& made) { made.file("etc/ld.so.conf.d/nvidia.conf", "/usr/local/nvidia/lib32\n"); }),
              ElementsAre(HasSubstr("etc/ld.so.conf.d/nvidia.conf: sha256")));
  EXPECT_THAT(faults([](auto& made) { made.tree.entries.at("usr/lib/libz.so.1").mode = 0755; }),
              ElementsAre("usr/lib/libz.so.1: mode 0755 instead of 0644"));
  EXPECT_THAT(faults([](auto& made) { made.tree.entries.at(kCudnn + "libcudnn.so.9").uid = 7; }),
              ElementsAre(kCudnn + "libcudnn.so.9: owner 7:0 instead of 0:0"));
  EXPECT_THAT(
      faults([](auto& made) { made.tree.entries.at(kCudnn + "libcudnn.so.9").xattrs["security.capability"] = "x"; }),
      ElementsAre(HasSubstr(kCudnn + "libcudnn.so.9: extended attributes ")));
  EXPECT_THAT(
      faults([](auto& made) { made.link("usr/local/cuda-12.4/lib/libcusolver.so", "libcusolver.so.11.6.1"); }),
      ElementsAre(
          "usr/local/cuda-12.4/lib/libcusolver.so: leads to libcusolver.so.11.6.1 instead of libcusolver.so.11"));
  EXPECT_THAT(faults([](auto& made) { made.library("usr/local/cuda-12.4/lib/libcufft.so.11"); }),
              ElementsAre(HasSubstr("libcufft.so.11: was not there, or not CUDA, before")));
}

TEST(CudaManifest, ANewMatchEarlierInTheSearchIsNamed) {
  EXPECT_THAT(
      faults([](auto& made) { made.library("usr/local/nvidia/lib64/libz.so.1"); }),
      ::testing::Contains(HasSubstr("needs libz.so.1: finds usr/local/nvidia/lib64/libz.so.1, usr/lib/libz.so.1")));
}

TEST(CudaManifest, TheLibraryPathIsTheLastOneOfTheConfig) {
  EXPECT_EQ(library_path_of(as_bytes(kConfig)), "/usr/local/nvidia/lib64:");
  EXPECT_EQ(
      library_path_of(as_bytes(std::string_view(R"({"config":{"Env":["LD_LIBRARY_PATH=/a","LD_LIBRARY_PATH=/b"]}})"))),
      "/b");
  EXPECT_EQ(library_path_of(as_bytes(std::string_view("{}"))), "");
  EXPECT_THROW(library_path_of(as_bytes(std::string_view("[]"))), CorruptData);
  EXPECT_THROW(library_path_of(as_bytes(std::string_view("{"))), CorruptData);
}

TEST(CudaManifest, WhatPeopleOrDamageChangedIsRefusedByName) {
  const auto json = to_json(manifest_of(image()));
  const auto refusal = [&](std::string_view from, std::string_view to) {
    auto changed = json;
    const auto at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    try {
      parse_manifest(changed, "proof");
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(refusal("PATH=/usr/bin", "PATH=/usr/sbin"), "proof: \"config_sha256\" is not that of \"config\"");
  EXPECT_EQ(refusal("\"format\": 1", "\"format\": 2"), "proof: \"format\" is not 1");
  EXPECT_EQ(refusal("\"type\":\"file\"", "\"type\":\"fifo\""), "proof: \"files[1].type\" is no type");
  EXPECT_EQ(refusal("\"mode\":420", "\"mode\":-1"),
            "proof: \"files[1].mode\" must be a whole number from 0 to 4294967295");
  EXPECT_EQ(refusal("\"rule\":", "\"rôle\":"), "proof: \"files[0].rôle\" is not known here");
  EXPECT_EQ(refusal("etc/ld.so.conf.d\"", "zzz\""), "proof: \"files[1]\" is out of order (by path)");
  EXPECT_EQ(refusal("\"missing\": [", "\"missing\": [[[[[["), "proof: nested deeper than 4");
  EXPECT_EQ(refusal("\"path\":\"etc", "\"path\":\"\\\\q"),
            "proof: \"files[0].path\" has a '\\' that begins nothing known");
  EXPECT_THROW(parse_manifest(json.substr(0, json.size() / 2), "proof"), CorruptData);
}

}  // namespace
}  // namespace varve::cuda
