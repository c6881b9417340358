#include "analyzer/prune/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace varve::prune {
namespace {

using index::FlatEntry;
using index::Tier;
using packages::Source;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr std::uint64_t kMiB = 1 << 20;
const std::string kSite = "usr/lib/python3/site-packages/";

class PlacementTest : public testing::Test {
 protected:
  std::uint32_t install(Source source, const std::string& name, const std::string& version = "1") {
    packages::Distribution distribution;
    distribution.name = distribution.normalized = name;
    distribution.version = version;
    distribution.source = source;
    inventory_.distributions.push_back(distribution);
    return std::uint32_t(inventory_.distributions.size() - 1);
  }
  void own(const std::string& prefix, std::vector<std::uint32_t> owners) {
    inventory_.path_owners[prefix] = std::move(owners);
  }

  FlatEntry& put(const std::string& path, std::uint64_t size = 10) {
    for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
      tree_.entries.try_emplace(path.substr(0, slash));
    auto& entry = tree_.entries[path];
    entry.type = FileType::kRegular;
    entry.size = size;
    return entry;
  }
  void link(const std::string& path, const std::string& first) {
    put(path, tree_.entries.at(first).size).link_of = first;
  }
  void decide(const std::string& name, Verdict verdict, const std::string& source = "pip") {
    PlannedDistribution planned;
    planned.name = name;
    planned.source = source;
    planned.verdict = verdict;
    plan_.verdicts.push_back(planned);
  }
  void is_cuda(const std::string& path, const std::string& rule) { cuda_.files[path].rule = rule; }

  index::Placement place(bool with_plan = true) {
    for (const auto& [prefix, owners] : inventory_.path_owners) {
      for (const auto& [path, entry] : tree_.entries) {
        if (entry.type != FileType::kDirectory && entry.link_of.empty() && inventory_.owners_of_path(path) == owners)
          inventory_.distributions[owners[0]].bytes += entry.size;
      }
    }
    return make_placement(tree_, inventory_, with_plan ? &plan_ : nullptr, &cuda_);
  }

  static std::map<std::string, std::vector<std::string>> members(const index::Placement& placement) {
    std::map<std::string, std::vector<std::string>> all;
    for (const auto& component : placement.components) all[component.name] = component.paths;
    return all;
  }
  static std::map<std::string, Tier> tiers(const index::Placement& placement) {
    std::map<std::string, Tier> all;
    for (const auto& component : placement.components) all[component.name] = component.tier;
    return all;
  }

  index::FlatTree tree_;
  packages::Inventory inventory_;
  Plan plan_;
  cuda::Selection cuda_;
};

TEST_F(PlacementTest, DistributionsAreComponentsAndTheRestIsTheSystem) {
  const auto numpy = install(Source::kPip, "numpy", "2.1.0");
  const auto scipy = install(Source::kConda, "scipy");
  const auto libc = install(Source::kDpkg, "libc6");
  own(kSite + "numpy/", {numpy});
  own("usr/bin/f2py", {numpy});
  own(kSite + "scipy/", {scipy});
  own("usr/lib/libc.so.6", {libc});
  for (const auto* path : {"numpy/__init__.py", "numpy/deep/in/x.so", "scipy/__init__.py", "numpy-not/x", "nump"})
    put(kSite + path);
  put("usr/bin/f2py");
  put("usr/bin/f2py3");
  put("usr/lib/libc.so.6");
  put("etc/passwd");
  const auto placement = place(false);
  EXPECT_THAT(members(placement),
              UnorderedElementsAre(Pair("pip:numpy", ElementsAre("usr/bin/f2py", kSite + "numpy/__init__.py",
                                                                 kSite + "numpy/deep/in/x.so")),
                                   Pair("conda:scipy", ElementsAre(kSite + "scipy/__init__.py"))));
  EXPECT_THAT(tiers(placement), UnorderedElementsAre(Pair("pip:numpy", Tier::kHot), Pair("conda:scipy", Tier::kHot)));
  EXPECT_EQ(placement.components[1].version, "2.1.0");
  EXPECT_THAT(placement.removed, IsEmpty());
}

TEST_F(PlacementTest, VerdictsGiveHeats) {
  const std::vector<std::pair<std::string, Verdict>> verdicts{
      {"a", Verdict::kHot}, {"b", Verdict::kWatch}, {"c", Verdict::kCold}, {"d", Verdict::kArchived}};
  for (const auto& [name, verdict] : verdicts) {
    own(kSite + name + "/", {install(Source::kPip, name)});
    put(kSite + name + "/x.py");
    decide(name, verdict);
  }
  own(kSite + "unknown/", {install(Source::kPip, "unknown")});
  put(kSite + "unknown/x.py");
  EXPECT_THAT(tiers(place()),
              UnorderedElementsAre(Pair("pip:a", Tier::kHot), Pair("pip:b", Tier::kWatch), Pair("pip:c", Tier::kCold),
                                   Pair("pip:d", Tier::kCold), Pair("pip:unknown", Tier::kHot)));
}

TEST_F(PlacementTest, WhatPythonReadsOfAllDistributionsDoesNotGoCold) {
  const std::vector<std::pair<std::string, Verdict>> verdicts{
      {"hot", Verdict::kHot}, {"cold", Verdict::kCold}, {"egg", Verdict::kCold}};
  for (const auto& [name, verdict] : verdicts) {
    const auto number = install(Source::kPip, name);
    own(kSite + name + "/", {number});
    own(kSite + name + "-1.dist-info/", {number});
    own(kSite + name + "-1.egg-info", {number});
    put(kSite + name + "/x.py");
    put(kSite + name + (name == "egg" ? "-1.egg-info" : "-1.dist-info/entry_points.txt"));
    decide(name, verdict);
  }
  auto all = members(place());
  EXPECT_THAT(all["pip:hot"], ElementsAre(kSite + "hot-1.dist-info/entry_points.txt", kSite + "hot/x.py"));
  EXPECT_THAT(all["pip:cold"], ElementsAre(kSite + "cold/x.py"));
  EXPECT_THAT(all["metadata"], ElementsAre(kSite + "cold-1.dist-info/entry_points.txt", kSite + "egg-1.egg-info"));
}

TEST_F(PlacementTest, ASharedPathGoesWithTheHottestOwner) {
  const auto cold = install(Source::kPip, "a-cold"), hot = install(Source::kPip, "hot"),
             watch = install(Source::kPip, "watch");
  decide("a-cold", Verdict::kCold);
  decide("watch", Verdict::kWatch);
  own(kSite + "ns/__init__.py", {cold, hot, watch});
  own(kSite + "ns/b.py", {cold, watch});
  own(kSite + "ns/c.py", {cold});
  for (const auto* path : {"ns/__init__.py", "ns/b.py", "ns/c.py"}) put(kSite + path);
  EXPECT_THAT(members(place()), UnorderedElementsAre(Pair("pip:hot", ElementsAre(kSite + "ns/__init__.py")),
                                                     Pair("pip:watch", ElementsAre(kSite + "ns/b.py")),
                                                     Pair("pip:a-cold", ElementsAre(kSite + "ns/c.py"))));
}

TEST_F(PlacementTest, CopiesInSeveralSitesAreOneAndVendoredOnesAreOfTheOuter) {
  const auto one = install(Source::kPip, "numpy", "1.0"), two = install(Source::kPip, "numpy", "2.0"),
             inner = install(Source::kPip, "six", "1.16");
  inventory_.distributions[inner].vendored_by = "numpy";
  own("opt/a/numpy/", {one});
  own("opt/b/numpy/x.py", {two});
  own("opt/b/numpy/_vendor/", {inner});
  for (const auto* path : {"opt/a/numpy/x.py", "opt/b/numpy/x.py", "opt/b/numpy/_vendor/six.py"}) put(path);
  const auto placement = place();
  ASSERT_EQ(placement.components.size(), 1u);
  EXPECT_EQ(placement.components[0].version, "1.0,2.0");
  EXPECT_EQ(placement.components[0].paths.size(), 3u);
}

TEST_F(PlacementTest, DebianPackagesStayTogetherUnlessTheyAreLargeOrCold) {
  own("usr/share/texlive/", {install(Source::kDpkg, "texlive")});
  own("usr/share/games/", {install(Source::kDpkg, "games")});
  own("usr/bin/ls", {install(Source::kDpkg, "coreutils")});
  decide("games", Verdict::kCold, "dpkg");
  decide("texlive", Verdict::kHot, "dpkg");
  put("usr/share/texlive/fonts", kOwnComponentBytes);
  put("usr/share/games/x");
  put("usr/bin/ls");
  EXPECT_THAT(tiers(place()),
              UnorderedElementsAre(Pair("dpkg:texlive", Tier::kSystem), Pair("dpkg:games", Tier::kCold)));
}

TEST_F(PlacementTest, CudaIsApart) {
  const auto cublas = install(Source::kPip, "nvidia-cublas-cu12", "12.4"), torch = install(Source::kPip, "torch"),
             xgboost = install(Source::kPip, "xgboost");
  const auto cudart = install(Source::kDpkg, "libcudart12");
  own(kSite + "nvidia/cublas/", {cublas});
  own(kSite + "nvidia_cublas_cu12.dist-info/", {cublas});
  own(kSite + "torch/", {torch});
  own(kSite + "xgboost/", {xgboost});
  own("usr/lib/libcudart.so.12", {cudart});
  own("usr/share/doc/libcudart12", {cudart});
  put(kSite + "nvidia/cublas/lib/libcublas.so.12", 100 * kMiB);
  put(kSite + "nvidia_cublas_cu12.dist-info/RECORD");
  put(kSite + "torch/lib/libcudnn.so", 10 * kMiB);
  put(kSite + "torch/lib/libtorch.so", 90 * kMiB);
  put(kSite + "xgboost/lib/libxgboost.so", 90 * kMiB);
  put("usr/lib/libcudart.so.12");
  put("usr/share/doc/libcudart12");
  put("usr/local/cuda-12.4/lib64/libcufft.so");
  put("usr/local/cuda-12.4/doc/cuda/x");
  put("opt/tool/lib/libnccl.so.2");
  put("etc/ld.so.conf.d/cuda.conf");
  put("usr/lib/libz.so");
  auto& alias = put("usr/local/cuda", 0);
  alias.type = FileType::kSymlink;
  alias.symlink_target = "cuda-12.4";
  is_cuda(kSite + "nvidia/cublas/lib/libcublas.so.12", "R1 libcublas*");
  is_cuda(kSite + "torch/lib/libcudnn.so", "R1 libcudnn*");
  is_cuda(kSite + "torch/lib/libtorch.so", "R4 needed by x");
  is_cuda(kSite + "xgboost/lib/libxgboost.so", "R3 fatbin");
  is_cuda("usr/lib/libcudart.so.12", "R1 libcudart*");
  is_cuda("usr/local/cuda-12.4/lib64/libcufft.so", "R1 libcufft*");
  is_cuda("usr/local/cuda-12.4/doc/cuda/x", "R2 usr/local/cuda*");
  is_cuda("usr/local/cuda", "R2 usr/local/cuda*");
  is_cuda("opt/tool/lib/libnccl.so.2", "R1 libnccl*");
  is_cuda("etc/ld.so.conf.d/cuda.conf", "config etc/ld.so.conf.d/*");
  is_cuda("usr/lib/libz.so", "R4 needed by x");
  const auto placement = place();
  EXPECT_THAT(
      members(placement),
      UnorderedElementsAre(Pair("cuda:nvidia-cublas-cu12", ElementsAre(kSite + "nvidia/cublas/lib/libcublas.so.12",
                                                                       kSite + "nvidia_cublas_cu12.dist-info/RECORD")),
                           Pair("cuda:torch", ElementsAre(kSite + "torch/lib/libcudnn.so")),
                           Pair("pip:torch", ElementsAre(kSite + "torch/lib/libtorch.so")),
                           Pair("pip:xgboost", ElementsAre(kSite + "xgboost/lib/libxgboost.so")),
                           Pair("cuda:libcudart12", ElementsAre("usr/lib/libcudart.so.12")),
                           Pair("cuda:usr/local/cuda-12.4",
                                ElementsAre("usr/local/cuda-12.4/doc/cuda/x", "usr/local/cuda-12.4/lib64/libcufft.so")),
                           Pair("cuda:opt/tool/lib", ElementsAre("opt/tool/lib/libnccl.so.2"))));
  for (const auto& [name, tier] : tiers(placement))
    EXPECT_EQ(tier, name.starts_with("cuda:") ? Tier::kCuda : Tier::kHot) << name;
  EXPECT_EQ(placement.components[1].version, "12.4");
}

TEST_F(PlacementTest, LargeFoldersOfNobodyAreComponents) {
  put("root/.bashrc");
  put("root/nltk_data/corpora/a.zip", 20 * kMiB);
  put("root/nltk_data/tokenizers/b.zip", 20 * kMiB);
  put("root/.keras/model.h5", 30 * kMiB);
  put("home/user/small", 5 * kMiB);
  put("opt/app/a/x", 9 * kMiB);
  put("opt/app/b/x", 9 * kMiB);
  put("srv/app/large", 20 * kMiB);
  put("srv/app/a/x", 20 * kMiB);
  put("srv/app/b/x", 10 * kMiB);
  put("usr/local/bin/node", 90 * kMiB);
  put("usr/local/bin/tool");
  put("usr/lib/python3/test/big.py", 20 * kMiB);
  put("usr/lib/python3/os.py");
  own("usr/local/bin/tool", {install(Source::kPip, "tool")});
  own(kSite + "a/", {install(Source::kPip, "a")});
  put(kSite + "a/x.py");
  put("\xff/bad", 100 * kMiB);
  const auto placement = place();
  EXPECT_THAT(members(placement),
              UnorderedElementsAre(
                  Pair("folder:root/nltk_data/corpora", ElementsAre("root/nltk_data/corpora/a.zip")),
                  Pair("folder:root/nltk_data/tokenizers", ElementsAre("root/nltk_data/tokenizers/b.zip")),
                  Pair("folder:root/.keras", ElementsAre("root/.keras/model.h5")),
                  Pair("folder:opt/app", ElementsAre("opt/app/a/x", "opt/app/b/x")),
                  Pair("folder:srv/app", ElementsAre("srv/app/a/x", "srv/app/b/x", "srv/app/large")),
                  Pair("file:usr/local/bin/node", ElementsAre("usr/local/bin/node")),
                  Pair("folder:usr/lib/python3/test", ElementsAre("usr/lib/python3/test/big.py")),
                  Pair("pip:tool", ElementsAre("usr/local/bin/tool")), Pair("pip:a", ElementsAre(kSite + "a/x.py"))));
}

TEST_F(PlacementTest, NamesOfOneInodeAreInOneComponent) {
  const auto cold = install(Source::kPip, "a-cold"), hot = install(Source::kPip, "hot");
  decide("a-cold", Verdict::kCold);
  own(kSite + "cold/", {cold});
  own(kSite + "hot/", {hot});
  put(kSite + "cold/x.so");
  link(kSite + "hot/x.so", kSite + "cold/x.so");
  put(kSite + "cold/y.so");
  link("usr/z.so", kSite + "cold/y.so");
  put(kSite + "cold/w.so");
  link(kSite + "cold/w2.so", kSite + "cold/w.so");
  EXPECT_THAT(members(place()),
              UnorderedElementsAre(Pair("pip:hot", ElementsAre(kSite + "cold/x.so", kSite + "hot/x.so")),
                                   Pair("pip:a-cold", ElementsAre(kSite + "cold/w.so", kSite + "cold/w2.so"))));
}

TEST_F(PlacementTest, AnImageWithoutPackagesIsSystemAndFolders) {
  put("bin/sh");
  put("data/x", 50 * kMiB);
  EXPECT_THAT(members(make_placement(tree_, inventory_, nullptr, nullptr)),
              UnorderedElementsAre(Pair("folder:data", ElementsAre("data/x"))));
}

}  // namespace
}  // namespace varve::prune
