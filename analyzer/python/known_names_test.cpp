#include "analyzer/python/known_names.h"

#include <gmock/gmock.h>

#include "analyzer/python/stdlib_names.h"

namespace varve::python {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(KnownNamesTest, KnowsNamesThatMislead) {
  EXPECT_THAT(known_distributions("bs4"), ElementsAre("beautifulsoup4"));
  EXPECT_THAT(known_distributions("sklearn.linear_model"), ElementsAre("scikit-learn"));
  EXPECT_THAT(known_distributions("cv2"), ElementsAre("opencv-python", "opencv-python-headless",
                                                      "opencv-contrib-python", "opencv-contrib-python-headless"));
}

TEST(KnownNamesTest, TheLongestPrefixDecides) {
  EXPECT_THAT(known_distributions("google.cloud.storage.blob"), ElementsAre("google-cloud-storage"));
  EXPECT_THAT(known_distributions("google.cloud.bigquery_storage"), ElementsAre("google-cloud-bigquery-storage"));
  EXPECT_THAT(known_distributions("google"), IsEmpty());
  EXPECT_THAT(known_distributions("google.nowhere"), IsEmpty());
  EXPECT_THAT(known_distributions("mpl_toolkits.basemap"), ElementsAre("basemap"));
  EXPECT_THAT(known_distributions("mpl_toolkits.mplot3d.axes3d"), ElementsAre("matplotlib"));
}

TEST(KnownNamesTest, SaysNothingWhereTheNameTellsItself) {
  for (const auto* const module : {"numpy", "pandas", "sentence_transformers", "bs4x", ""})
    EXPECT_THAT(known_distributions(module), IsEmpty()) << module;
}

TEST(GpuNamesTest, KnowsWhatCanUseAGpu) {
  for (const auto* const name : {"torch", "tensorflow", "jax", "cupy-cuda12x", "cudf-cu12", "nvidia-cublas-cu12",
                                 "xgboost", "lightgbm", "numba", "triton", "jax-cuda12-pjrt", "transformers"})
    EXPECT_TRUE(can_use_gpu(name)) << name;
  for (const auto* const name :
       {"numpy", "pandas", "tensorflow-cpu", "faiss-cpu", "nvidia-pyindex", "scikit-learn", "requests", ""})
    EXPECT_FALSE(can_use_gpu(name)) << name;
}

TEST(StdlibTest, KnowsWhichPythonHasWhat) {
  const struct {
    const char *module, *version;
    bool expected;
  } kCases[] = {{"os.path", "3.11", true},
                {"_ssl", "3.8", true},
                {"numpy", "", false},
                {"urllib2", "", true},
                {"urllib2", "2.7.18", true},
                {"urllib2", "3.8", false},
                {"cPickle", "2.7", true},
                {"StringIO", "3.11", false},
                {"ConfigParser", "2.7", true},
                {"Queue", "2.7", true},
                {"queue", "2.7", false},
                {"queue", "3.8", true},
                {"distutils", "3.11.2", true},
                {"distutils", "3.12", false},
                {"distutils", "", true},
                {"zoneinfo", "3.8", false},
                {"zoneinfo", "3.9", true},
                {"tomllib", "3.10", false},
                {"tomllib", "3.11", true},
                {"dataclasses", "3.6", false},
                {"annotationlib", "3.14", true},
                {"annotationlib", "3.13", false},
                {"annotationlib", "3.99", true},
                {"imp", "3.5", true},
                {"cgi", "3.13", false},
                {"cgi", "3.12", true},
                {"test", "", false},
                {"", "", false},
                {"winreg", "3.11", true},
                {"asyncio", "2.7", false},
                {"tomllib", "x", true},
                {"pkg_resources", "", false},
                {"__main__", "3.10", true},
                {"gl", "", false}};
  for (const auto& expected : kCases)
    EXPECT_EQ(is_stdlib(expected.module, expected.version), expected.expected)
        << expected.module << " " << expected.version;
}

}  // namespace
}  // namespace varve::python
