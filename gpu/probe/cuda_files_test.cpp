#include "gpu/probe/cuda_files.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "testing/temp_dir.h"

namespace varve::gpu::probe {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

TEST(CudaLibraries, AreKnownByName) {
  for (const char* name :
       {"libcublas.so.12", "libcublasLt.so.13", "libcudnn_engines_precompiled.so.9.1.0", "libcudart.so.11.0",
        "libcudart-9d6f5a5c.so.12", "libnccl.so.2", "libnvrtc-builtins.so.12.4", "libnvrtc.alt.so.13",
        "libnvrtc-builtins.alt.so.13.0", "libnvJitLink.so", "libcurand.so.10"}) {
    EXPECT_TRUE(is_needed_library(name)) << name;
    EXPECT_TRUE(is_cuda_library(name)) << name;
  }
  for (const char* name : {"libnccl-net.so", "libnvblas.so.13", "libcusolverMg.so.12", "libcufile_rdma.so.1",
                           "libnvinfer_plugin.so.10", "libcupti.so.13", "libnvvm.so.4"}) {
    EXPECT_TRUE(is_cuda_library(name)) << name;
    EXPECT_FALSE(is_needed_library(name)) << name;
  }
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1", "libcublas.a", "libcublas.sock", "libcublas",
                           "libcudadevrt.a", "libc.so.6", "libcublas.so12", "cublas.so.12", ""}) {
    EXPECT_FALSE(is_cuda_library(name)) << name;
  }
}

TEST(ConfiguredFolders, FollowIncludesButNotForEver) {
  const test::TempDir dir;
  fs::create_directories(dir.path() / "conf.d");
  std::ofstream(dir.path() / "ld.so.conf")
      << "# the loader's\n/first\ninclude conf.d/*.conf\n  /last \t\nhwcap 0 nosegneg\n";
  std::ofstream(dir.path() / "conf.d/a.conf")
      << "/usr/local/cuda/lib64 # toolkit\ninclude " << (dir.path() / "ld.so.conf").string() << "\n";
  const auto folders = configured_folders(dir.path() / "ld.so.conf");
  EXPECT_EQ(folders.front(), "/first");
  EXPECT_THAT(folders, Contains("/usr/local/cuda/lib64"));
  EXPECT_EQ(folders.back(), "/last");
  EXPECT_LT(folders.size(), 100u);
  EXPECT_THAT(configured_folders(dir.path() / "nothing"), ElementsAre());
}

TEST(LibraryFoldersOfWheels, AreThoseBelowTheGivenOnes) {
  const test::TempDir dir;
  fs::create_directories(dir.path() / "nvidia/cublas/lib");
  fs::create_directories(dir.path() / "nvidia/cu13/lib/stubs");
  fs::create_directories(dir.path() / "stubs");
  std::ofstream(dir.path() / "nvidia/cublas/lib/libcublas.so.12") << "x";
  const LibraryFolders folders({dir.path().string()});
  EXPECT_THAT(folders.folders(),
              ElementsAre(dir.path(), dir.path() / "nvidia/cu13/lib", dir.path() / "nvidia/cublas/lib"));
  EXPECT_EQ(folders.find("libcublas.so.12"), dir.path() / "nvidia/cublas/lib/libcublas.so.12");
  EXPECT_EQ(folders.find("libcublas.so.13"), std::nullopt);

  ::setenv("LD_LIBRARY_PATH", (dir.path().string() + ":" + (dir.path() / "stubs").string() + ":/not/there:").c_str(),
           1);
  const auto searched = library_folders(folders);
  ::unsetenv("LD_LIBRARY_PATH");
  EXPECT_EQ(searched.front(), dir.path());
  EXPECT_EQ(std::ranges::count(searched, dir.path()), 1);
  EXPECT_THAT(searched, Contains(dir.path() / "nvidia/cublas/lib"));
  EXPECT_THAT(searched, Not(Contains(dir.path() / "stubs")));
  EXPECT_THAT(searched, Not(Contains("/not/there")));
}

}  // namespace
}  // namespace varve::gpu::probe
