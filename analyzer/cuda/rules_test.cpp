#include "analyzer/cuda/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "testing/elf_tree.h"

namespace varve::cuda {
namespace {

using test::FakeTree;
using test::with_runpath;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kSite = "usr/lib/python3.11/site-packages/";

class RulesTest : public ::testing::Test {
 protected:
  Selection select(const std::string& library_path = {}) const {
    const elf::Loader loader(made.tree, {.library_path = library_path, .cache = {}});
    return select_cuda(made.tree, loader, built_in_rules());
  }
  std::string rule(const std::string& path) const {
    const auto selection = select();
    const auto found = selection.files.find(path);
    return found == selection.files.end() ? "not kept" : found->second.rule;
  }
  FakeTree made;
};

TEST(CudaRules, TheRulesOfTheProgramAreWhole) {
  const auto& rules = built_in_rules();
  EXPECT_GT(rules.names.size(), 5u);
  EXPECT_GT(rules.roots.size(), 10u);
  EXPECT_GT(rules.dlopen.size(), 20u);
  EXPECT_FALSE(rules.tail_if.empty());
  EXPECT_EQ(rules.digest, digest_of(built_in_rules_text()));
}

TEST(CudaRules, RefusalsNameFileAndLine) {
  const auto refusal = [](const char* toml) {
    try {
      parse_rules(toml, "my.toml");
    } catch (const CorruptData& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(refusal("names = ['a']\nroots = []\nroot = ['b']\n"), "my.toml:3: 'root' is not known here");
  EXPECT_EQ(refusal("names = ['a']\n"), "my.toml:1: 'roots' is missing");
  EXPECT_EQ(refusal("names = ['a']\nroots = [\n'/usr']\n"),
            "my.toml:3: '/usr' in 'roots': patterns are not empty and have no leading '/'");
  EXPECT_THAT(refusal("names = ['{a']\nroots = []\n"), HasSubstr("my.toml:1: pattern '{a'"));
  EXPECT_EQ(refusal("names = []\nroots = []\n[[dlopen]]\nopener = 'x'\nopens = ['y']\nneed = 'perhaps'\n"),
            "my.toml:6: need = 'perhaps' must be \"required\", \"optional\" or \"driver\"");
}

TEST_F(RulesTest, NamesInAnyFolderLinksToo) {
  made.library("opt/somewhere/libcudnn_engines_precompiled.so.9.1.0");
  made.link("opt/somewhere/libcudnn_engines_precompiled.so.9", "libcudnn_engines_precompiled.so.9.1.0");
  made.library(kSite + "x.libs/libcublas-1a2b3c4d.so.12");
  made.file("usr/lib/libcuda.so.1", "");
  made.file(kSite + "cupy/k.fatbin");
  made.file("usr/bin/ptxas");
  made.file("usr/share/doc/ptxas");
  EXPECT_THAT(rule("opt/somewhere/libcudnn_engines_precompiled.so.9.1.0"), HasSubstr("R1 libcudnn*"));
  EXPECT_THAT(rule("opt/somewhere/libcudnn_engines_precompiled.so.9"), HasSubstr("R1"));
  EXPECT_THAT(rule(kSite + "x.libs/libcublas-1a2b3c4d.so.12"), HasSubstr("R1 libcublas-*"));
  EXPECT_THAT(rule("usr/lib/libcuda.so.1"), HasSubstr("R1 libcuda.so*"));
  EXPECT_THAT(rule(kSite + "cupy/k.fatbin"), HasSubstr("R1 *.fatbin"));
  EXPECT_THAT(rule("usr/bin/ptxas"), HasSubstr("R1 bin/**/ptxas"));
  EXPECT_EQ(rule("usr/share/doc/ptxas"), "not kept");
}

TEST_F(RulesTest, RootsWithAllThatIsInThemAndWhatTheirLinksLeadTo) {
  made.file(kSite + "nvidia/cublas/__init__.py", "");
  made.file(kSite + "nvidia_cublas_cu12-12.4.dist-info/RECORD");
  made.link("usr/local/cuda", "/etc/alternatives/cuda");
  made.link("etc/alternatives/cuda", "/opt/toolkits/12.4");
  made.file("opt/toolkits/12.4/include/cuda.h");
  made.dir("opt/toolkits/12.4/empty");
  made.dir("usr/local/nvidia");
  made.file("usr/local/bin/other");
  EXPECT_EQ(rule(kSite + "nvidia/cublas/__init__.py"), "R2 **/site-packages/nvidia");
  EXPECT_EQ(rule(kSite + "nvidia_cublas_cu12-12.4.dist-info/RECORD"), "R2 **/site-packages/nvidia_*.dist-info");
  EXPECT_EQ(rule("usr/local/cuda"), "R2 usr/local/cuda*");
  EXPECT_THAT(rule("opt/toolkits/12.4/include/cuda.h"), HasSubstr("R2 "));
  EXPECT_THAT(rule("opt/toolkits/12.4/empty"), HasSubstr("R2 "));
  EXPECT_EQ(rule("usr/local/nvidia"), "R2 usr/local/nvidia");
  EXPECT_EQ(rule("usr/local/bin/other"), "not kept");
}

TEST_F(RulesTest, DeviceCodeAndNeedsOfCudaLibraries) {
  index::ElfFacts device;
  device.device_code = true;
  made.library(kSite + "xgboost/lib/libxgboost.so", {}, device);
  made.library(kSite + "pkg/ext.so", {"libcublasLt.so.12"});
  made.library(kSite + "pkg/plain.so", {"libm.so.6"});
  EXPECT_EQ(rule(kSite + "xgboost/lib/libxgboost.so"), "R3 device code");
  EXPECT_EQ(rule(kSite + "pkg/ext.so"), "R3 needs libcublasLt.so.12");
  EXPECT_EQ(rule(kSite + "pkg/plain.so"), "not kept");
}

TEST_F(RulesTest, NeedsAreClosedWithEveryMatch) {
  made.library("opt/x/libcusolver.so.11", {"libhelper.so.1"}, with_runpath("$ORIGIN/../y"));
  made.library("opt/y/libhelper.so.1", {"libdeep.so"});
  made.library("env/libhelper.so.1.2");
  made.link("env/libhelper.so.1", "libhelper.so.1.2");
  made.library("usr/lib/libdeep.so");
  made.library("usr/lib/libunrelated.so");
  const auto selection = select("/env");
  EXPECT_EQ(selection.files.at("opt/y/libhelper.so.1").rule, "R4 needed by opt/x/libcusolver.so.11");
  EXPECT_EQ(selection.files.at("env/libhelper.so.1.2").rule, "R4 needed by opt/x/libcusolver.so.11");
  EXPECT_EQ(selection.files.at("env/libhelper.so.1").rule, "R4 name of env/libhelper.so.1.2");
  EXPECT_EQ(selection.files.at("usr/lib/libdeep.so").rule, "R4 needed by opt/y/libhelper.so.1");
  EXPECT_FALSE(selection.files.contains("usr/lib/libunrelated.so"));
  EXPECT_THAT(selection.needs.at("opt/x/libcusolver.so.11")[0].matches,
              ElementsAre("env/libhelper.so.1.2", "opt/y/libhelper.so.1"));
}

TEST_F(RulesTest, LinksAndHardLinksStayInBothDirections) {
  made.library("opt/real/impl.bin", {}, [] {
    index::ElfFacts facts;
    facts.device_code = true;
    return facts;
  }());
  made.link("opt/real/libimpl.so.1", "impl.bin");
  made.link("usr/lib/libimpl.so", "../../opt/real/libimpl.so.1");
  auto& other = made.library("opt/real/same", {});
  other.link_of = "opt/real/impl.bin";
  made.link("opt/unrelated", "nowhere");
  for (const auto* path : {"opt/real/libimpl.so.1", "usr/lib/libimpl.so", "opt/real/same"})
    EXPECT_EQ(rule(path), "R4 name of opt/real/impl.bin") << path;
  EXPECT_EQ(rule("opt/unrelated"), "not kept");
}

TEST_F(RulesTest, WhatIsOpenedByNameIsKeptAndWhatIsMissingIsReported) {
  const auto cudnn = kSite + "nvidia/cudnn/lib/";
  for (const auto* part :
       {"", "_graph", "_ops", "_cnn", "_adv", "_engines_precompiled", "_engines_runtime_compiled", "_heuristic"})
    made.library(cudnn + "libcudnn" + part + ".so.9");
  made.library(kSite + "nvidia/cublas/lib/libcublasLt.so.12");
  made.library(kSite + "nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  made.library(kSite + "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.4");
  made.library("usr/local/cuda-12.4/lib/libnccl.so.2");
  made.library("usr/lib/x86_64-linux-gnu/libibverbs.so.1", {"libnl-3.so.200"});
  made.library("usr/lib/x86_64-linux-gnu/libnl-3.so.200");
  EXPECT_THAT(select().missing, IsEmpty());
  EXPECT_TRUE(select().files.contains("usr/lib/x86_64-linux-gnu/libnl-3.so.200"));

  auto whole = made;
  made.tree.entries.erase(cudnn + "libcudnn_engines_precompiled.so.9");
  EXPECT_THAT(
      select().missing,
      ElementsAre(cudnn +
                  "libcudnn_graph.so.9 opens libcudnn_engines_precompiled.so.9*, which the image does not have"));

  made = whole;
  made.tree.entries.erase(kSite + "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.4");
  made.library("opt/other/libnvrtc-builtins.so.12.4");
  made.library("opt/other/libnvrtc-builtins.so.11.8");
  EXPECT_THAT(select().missing,
              ElementsAre(kSite + "nvidia/cuda_nvrtc/lib/libnvrtc.so.12 opens libnvrtc-builtins.so.12.*; there is "
                                  "opt/other/libnvrtc-builtins.so.12.4, but not where it searches"));
}

TEST_F(RulesTest, TheTailAndCompilersStayOnlyWhereSomethingUsesThem) {
  made.library("usr/lib/x86_64-linux-gnu/libz.so.1.2.13");
  made.link("usr/lib/x86_64-linux-gnu/libz.so.1", "libz.so.1.2.13");
  made.library(kSite + "pillow.libs/libz.so.1");
  made.link("usr/bin/cc", "/etc/alternatives/cc");
  made.link("etc/alternatives/cc", "/usr/bin/gcc");
  made.file("usr/bin/gcc");
  made.file("usr/include/stdio.h");
  EXPECT_EQ(rule("usr/lib/x86_64-linux-gnu/libz.so.1"), "not kept");
  made.library("usr/local/cuda/lib64/libcudart.so.12");
  EXPECT_THAT(rule("usr/lib/x86_64-linux-gnu/libz.so.1"), HasSubstr("R4 tail libz.so*"));
  EXPECT_EQ(rule(kSite + "pillow.libs/libz.so.1"), "not kept");
  EXPECT_EQ(rule("usr/bin/gcc"), "not kept");
  made.file(kSite + "triton/__init__.py");
  EXPECT_THAT(rule("usr/bin/gcc"), HasSubstr("R4 compiler for **/site-packages/triton"));
  EXPECT_THAT(rule("etc/alternatives/cc"), HasSubstr("R4 name of usr/bin/"));
  EXPECT_THAT(rule("usr/include/stdio.h"), HasSubstr("R4 compiler"));
}

TEST_F(RulesTest, ConfigurationIsKeptWithoutCudaToo) {
  made.file("etc/ld.so.conf.d/nvidia.conf");
  made.file("etc/ld.so.cache");
  made.file("sbin/ldconfig");
  made.file("etc/passwd");
  EXPECT_EQ(rule("etc/ld.so.conf.d/nvidia.conf"), "config etc/ld.so.conf.d");
  EXPECT_EQ(rule("etc/ld.so.cache"), "config etc/ld.so.cache");
  EXPECT_EQ(rule("sbin/ldconfig"), "config sbin/ldconfig*");
  EXPECT_EQ(rule("etc/passwd"), "not kept");
  EXPECT_FALSE(select().has_cuda);
}

TEST_F(RulesTest, DroppableIsOnlyWhatNoNameHolds) {
  made.file("usr/local/cuda/lib64/libcublasLt_static.a");
  made.file("usr/local/cuda/lib64/libcudart_static.a");
  made.file("usr/local/cuda/doc/x.html");
  made.file("usr/local/cuda/lib64/libcublas.so.12");
  EXPECT_THAT(droppable_paths(made.tree, built_in_rules()),
              ElementsAre("usr/local/cuda/doc/x.html", "usr/local/cuda/lib64/libcublasLt_static.a"));
}

TEST_F(RulesTest, AnIndexWithoutElfFactsIsRefused) {
  made.tree.has_elf_facts = false;
  EXPECT_THROW(select(), Unsupported);
}

}  // namespace
}  // namespace varve::cuda
