#include "gpu/probe/library.h"

#include <gmock/gmock.h>

#include <fstream>

#include "testing/refusal.h"
#include "testing/temp_dir.h"

#define TEST_REQUIRED(F) F(varve_opener, int, int)
#define TEST_OPTIONAL(F) F(varve_words, const char*) F(varve_newer, int)
#define TEST_MISSING(F) F(varve_opener, int, int) F(varve_missing, int)

namespace varve::gpu::api {
VARVE_API_STRUCT(OpenerFunctions, TEST_REQUIRED, TEST_OPTIONAL)
VARVE_API_STRUCT(MissingFunctions, TEST_MISSING, VARVE_API_NONE)
}  // namespace varve::gpu::api

namespace varve::gpu::probe {

std::string error_name(const api::OpenerFunctions&, int status) { return "opener error " + std::to_string(status); }

namespace {

using test::refusal_of;

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const fs::path kOpener = VARVE_TEST_OPENER, kNeeded = VARVE_TEST_NEEDED;

TEST(Libraries, AreFoundInFoldersWithWhatTheyNeed) {
  const test::TempDir wheels;
  const auto opener_lib = wheels / "nvidia/opener/lib", needed_lib = wheels / "nvidia/zz/lib";
  fs::create_directories(opener_lib);
  fs::create_directories(needed_lib);
  fs::copy_file(kOpener, opener_lib / kOpener.filename());
  const LibraryFolders alone({wheels.path().string()});
  try {
    Library::find({kOpener.filename().string()}, alone);
    FAIL() << "what it needs is nowhere";
  } catch (const LoadError& error) {
    EXPECT_EQ(error.missing, kNeeded.filename().string());
    EXPECT_THAT(error.what(),
                AllOf(StartsWith((opener_lib / kOpener.filename()).string()), HasSubstr(kNeeded.filename().string())));
  }

  fs::copy_file(kNeeded, needed_lib / kNeeded.filename());
  const auto library =
      Library::open({"libvarve_none.so.2", kOpener.filename().string()}, LibraryFolders({wheels.path().string()}));
  EXPECT_EQ(library.name(), kOpener.filename().string());
  EXPECT_EQ(library.path(), (opener_lib / kOpener.filename()).string());

  const Api<api::OpenerFunctions> api(library);
  EXPECT_EQ(api.varve_opener(0), 42);
  ASSERT_TRUE(api.varve_words);
  EXPECT_STREQ(api.varve_words(), "words");
  EXPECT_FALSE(api.varve_newer);
  EXPECT_THAT(refusal_of([&] { api.call(api.varve_opener, 0); }),
              AllOf(StartsWith("varve_opener returned opener error 42"), HasSubstr(library.path())));
  EXPECT_THAT(refusal_of([&] { Api<api::MissingFunctions>{library}; }),
              AllOf(StartsWith(library.path()), HasSubstr("varve_missing")));
}

TEST(Libraries, ThatAreNotThereAreSkipped) {
  const LibraryFolders folders({"/nowhere"});
  EXPECT_EQ(Library::find({"libvarve_none.so.2", "libvarve_none.so.1"}, folders), std::nullopt);
  EXPECT_THROW(Library::open({"libvarve_none.so.2", "libvarve_none.so.1"}, folders), Skip);
  EXPECT_THAT(refusal_of([&] {
                Library::open({"libvarve_none.so.2", "libvarve_none.so.1"}, folders);
              }),
              StartsWith("libvarve_none.so.2, libvarve_none.so.1: not found"));
}

TEST(Libraries, ThatAreNoLibrariesAreErrorsAndNotSkipped) {
  const test::TempDir dir;
  std::ofstream(dir / "libvarve_broken.so.1")
      << "not an ELF file, and longer than its header would be: ................................";
  const LibraryFolders folders({dir.path().string()});
  EXPECT_THROW(Library::find({"libvarve_broken.so.1"}, folders), LoadError);
  EXPECT_THAT(refusal_of([&] { Library::find({"libvarve_broken.so.1"}, folders); }),
              AllOf(StartsWith(dir.path().string()), EndsWith("invalid ELF header")));
}

int ended = 0;
int end_number(int) { return ++ended; }

TEST(Handles, AreEndedOnceAndOnlyIfMade) {
  const api::Function<int(int)> end{"end", end_number};
  { const Handle<int> never(end, -1); }
  EXPECT_EQ(ended, 0);
  {
    Handle<int> made(end, -1);
    *made.out() = 0;  // as plans of cuFFT are numbered
  }
  EXPECT_EQ(ended, 1);
}

}  // namespace
}  // namespace varve::gpu::probe
