#include "analyzer/notebooks/language.h"

#include <gtest/gtest.h>

namespace varve::notebooks {
namespace {

TEST(Language, IsToldByKernelNames) {
  const std::pair<const char*, const char*> kCases[] = {{"python3", "python"},
                                                        {"conda_pytorch_p310", "python"},
                                                        {"conda_python3", "python"},
                                                        {"pysparkkernel", "python"},
                                                        {"ir", "r"},
                                                        {"ir41", "r"},
                                                        {"conda-env-stats-r", "r"},
                                                        {"conda-env-ml-py", "python"},
                                                        {"conda_r", "r"},
                                                        {"julia-1.9", "julia"},
                                                        {"xcpp17", "c++"},
                                                        {"sparkkernel", "scala"},
                                                        {"sparkrkernel", "r"},
                                                        {"iruby", ""},
                                                        {"my-env", ""},
                                                        {"", ""},
                                                        {"bash", "bash"},
                                                        {"irony", ""}};
  for (const auto& [kernel, language] : kCases) EXPECT_EQ(language_of_kernel(kernel), language) << kernel;
}

TEST(Language, OfTheKernelComesFirst) {
  EXPECT_EQ(language_of_notebook("R", "python", "python3"), "r");
  EXPECT_EQ(language_of_notebook("", "Python", "ir"), "python");
  EXPECT_EQ(language_of_notebook("", "", "julia-1.0"), "julia");
  EXPECT_EQ(language_of_notebook("", "pyspark", "x"), "python");
  EXPECT_EQ(language_of_notebook("C++17", "", ""), "c++17");
  EXPECT_EQ(language_of_notebook("", "", "tf2"), "");
}

TEST(Language, OfTextThatSaysNothing) {
  EXPECT_EQ(language_of_text(""), "");
  EXPECT_EQ(language_of_text("# only a comment\n\n"), "");
  EXPECT_EQ(language_of_text("x = 1"), "python");
  EXPECT_EQ(language_of_text("library(ggplot2)\ndf <- read.csv('a')\r\n"), "r");
  EXPECT_EQ(language_of_text("import pandas\nx <- 3"), "python");
  EXPECT_EQ(language_of_text("using Plots\nfunction f(x)\nend\n"), "julia");
}

}  // namespace
}  // namespace varve::notebooks
