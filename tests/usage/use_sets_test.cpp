// Which distributions are used together: notebooks, sessions, and how many of a set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>

#include "analyzer/notebooks/scan.h"
#include "tests/usage/usage_test_support.h"

namespace varve::usage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<TestPackage> kUseSetPackages{
    {.name = "numpy", .modules = {"numpy"}, .paths = {"lib/numpy/"}},
    {.name = "pandas", .modules = {"pandas"}, .paths = {"lib/pandas/"}},
    {.name = "google-cloud-storage", .modules = {"google.cloud.storage"}},
    {.name = "opencv-python", .modules = {"cv2"}},
    {.name = "opencv-python-headless", .modules = {"cv2"}},
    {.name = "jupyter", .modules = {}, .paths = {"bin/jupyter"}},
};

class UseSets : public DatabaseFixture {
 protected:
  std::filesystem::path spool() const { return folder_.path() / "spool"; }
  void collect() { database_->collect({spool()}, {}, cancel_); }
  SpoolWriterForTests session(unsigned number, const std::string& day, unsigned user, unsigned image = 1) {
    auto start = start_record(number, 1, day, image);
    start.user = user_hash(user);
    return {spool(), start};
  }
  std::vector<NotebookImports> notebooks(unsigned image = 1) {
    std::vector<NotebookImports> all;
    database_->notebooks(image_digest(image), [&](NotebookImports&& notebook) { all.push_back(std::move(notebook)); });
    return all;
  }
  std::vector<SessionUse> sessions(const SnapshotQuery& query, std::uint64_t at_most, SessionSample* sample = nullptr) {
    std::vector<SessionUse> all;
    const auto given =
        database_->sessions(query, at_most, [&](SessionUse&& session) { all.push_back(std::move(session)); });
    if (sample != nullptr) *sample = given;
    return all;
  }
};
VARVE_FOR_BOTH_DATABASES(UseSets);

notebooks::ScannedFile notebook(const std::string& path, const std::string& code,
                                const std::vector<std::pair<std::string, std::string>>& imports) {
  notebooks::ScannedFile file;
  file.path = path;
  file.format = "ipynb";
  file.language = "python";
  file.code_digest = digest_of(code);
  for (const auto& [name, module] : imports) file.imports.push_back({.name = name, .module = module});
  return file;
}

TEST_P(UseSets, GivesEveryDistinctNotebookWithWhatItNeedsOfTheImage) {
  database_->put_inventory(inventory_of(1, kUseSetPackages), "v1");
  database_->put_inventory(inventory_of(2, {kUseSetPackages[0]}), "v2");
  notebooks::ScanResult scan;
  scan.files.push_back(notebook("z/copy.ipynb", "one", {{"numpy.linalg", "numpy"}, {"cv2", "cv2"}}));
  scan.files.push_back(notebook("a/first.ipynb", "one", {{"numpy.linalg", "numpy"}, {"cv2", "cv2"}}));
  scan.files.push_back(notebook(
      "b.ipynb", "two",
      {{"google.cloud.storage", "google.cloud"}, {"os.path", "os"}, {"kaggle", ""}, {"pandas.io", "pandas.io"}}));
  scan.files.push_back(notebook("c.ipynb", "three", {}));
  scan.files.back().imports.push_back({.name = "pandas", .module = "pandas", .local = true});
  database_->put_scan(scan);

  const auto all = notebooks();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].path, "a/first.ipynb");
  EXPECT_EQ(all[0].copies, 2U);
  EXPECT_EQ(all[0].code, digest_of("one"));
  EXPECT_EQ(all[0].language, "python");
  EXPECT_THAT(all[0].distributions, ElementsAre("numpy", "opencv-python", "opencv-python-headless"));
  EXPECT_THAT(all[0].modules, ElementsAre("cv2", "numpy"));
  // `from google.cloud import storage`: whose it is depends on what may be a module, what is imported for certain is
  // the namespace.
  EXPECT_THAT(all[1].distributions, ElementsAre("google-cloud-storage", "pandas"));
  EXPECT_THAT(all[1].modules, ElementsAre("google.cloud", "pandas.io"));
  EXPECT_EQ(all[2].path, "c.ipynb");
  EXPECT_THAT(all[2].distributions, IsEmpty());

  EXPECT_THAT(notebooks(2)[0].distributions, ElementsAre("numpy"));
  EXPECT_THAT(notebooks(2)[0].modules, ElementsAre("numpy"));
  EXPECT_THAT(notebooks(3)[0].distributions, ElementsAre("numpy", "opencv-python", "opencv-python-headless"))
      << "not known: by what all images have";
}

TEST_P(UseSets, CountsNoImportOfAnotherLanguageForPython) {
  database_->put_inventory(inventory_of(1, kUseSetPackages), "v1");
  const test::TempDir folder;
  const auto write = [&](const char* name, std::string_view text) {
    std::ofstream(folder.path() / name, std::ios::binary) << text;
  };
  write("a.R", "library(numpy)\nimport numpy\n");
  write("b.jl", "using cv2\nimport cv2\n");
  write("c.ipynb",
        R"({"metadata": {"kernelspec": {"name": "ir"}}, "cells": [{"cell_type": "code", "source": "import numpy"}]})");
  write("d.ipynb", R"({"cells": [{"cell_type": "code", "source": "%%R\nlibrary(numpy)\nimport numpy"},
                                 {"cell_type": "code",
                                  "source": "!Rscript -e 'library(numpy)'\n!julia -e 'import cv2'"}]})");
  write("e.Rmd", "```{r}\nlibrary(cv2)\nimport numpy\n```\n");
  database_->put_scan(notebooks::scan({folder.path()}, {}, cancel_));
  const auto all = notebooks();
  ASSERT_EQ(all.size(), 5U);
  for (const auto& one : all) EXPECT_THAT(one.distributions, IsEmpty()) << one.path;
  EXPECT_THAT(database_->explain("numpy", {.window = all_days(), .image = std::nullopt}).evidence,
              testing::Each(testing::Field(&Evidence::kind, testing::Ne("notebook"))));
}

TEST_P(UseSets, CountsProgramsThatNotebooksRunAndWhatTheyInstall) {
  auto packages = kUseSetPackages;
  packages.push_back({.name = "awscli", .modules = {"awscli"}, .paths = {"opt/venv/bin/aws"}});
  packages.push_back({.name = "scikit-learn", .modules = {"sklearn"}});
  database_->put_inventory(inventory_of(1, packages), "v1");
  const test::TempDir folder;
  const auto write = [&](const char* name, std::string_view text) {
    std::ofstream(folder.path() / name, std::ios::binary) << text;
  };
  write("a.ipynb", R"({"cells": [{"cell_type": "code", "source": "!aws s3 ls"}]})");
  write("b.ipynb", R"({"cells": [{"cell_type": "code", "source": "%%bash\ncd x && aws s3 cp a b"}]})");
  write("c.py", "import os, subprocess\nsubprocess.run(['aws', 's3'])\nos.system('jupyter nbconvert x.ipynb')\n");
  write("d.ipynb", R"({"cells": [{"cell_type": "code", "source": "%pip install 'Scikit_Learn>=1' torch"}]})");
  write("e.ipynb", R"({"cells": [{"cell_type": "code", "source": "!pip uninstall -y pandas"}]})");
  write("f.py", "import aws\n");
  database_->put_scan(notebooks::scan({folder.path()}, {}, cancel_));
  const auto all = notebooks();
  ASSERT_EQ(all.size(), 6U);
  EXPECT_THAT(all[0].distributions, ElementsAre("awscli"));
  EXPECT_THAT(all[1].distributions, ElementsAre("awscli"));
  EXPECT_THAT(all[2].distributions, ElementsAre("awscli", "jupyter"));
  EXPECT_THAT(all[3].distributions, ElementsAre("scikit-learn"));
  EXPECT_THAT(all[4].distributions, IsEmpty());
  EXPECT_THAT(all[5].distributions, IsEmpty()) << "a module is no program";
  for (const auto& one : all) EXPECT_THAT(one.modules, testing::Not(testing::Contains("aws"))) << one.path;

  const auto facts = database_->snapshot({.window = all_days(), .image = std::nullopt});
  const auto notebooks_of = [&](const std::string& name) {
    for (const auto& use : facts.distributions)
      if (use.name == name) return use.notebooks;
    return std::uint64_t(0);
  };
  EXPECT_EQ(notebooks_of("awscli"), 3U);
  EXPECT_EQ(notebooks_of("scikit-learn"), 1U);
  EXPECT_EQ(notebooks_of("pandas"), 0U);
  const auto explained = database_->explain("aws", {.window = all_days(), .image = std::nullopt});
  EXPECT_THAT(explained.distributions, ElementsAre("awscli"));
  std::vector<std::string> details;
  for (const auto& evidence : explained.evidence)
    if (evidence.kind == "notebook") details.push_back(evidence.detail);
  EXPECT_THAT(details, testing::SizeIs(3));
  EXPECT_THAT(details, testing::Contains(testing::HasSubstr("a.ipynb: aws (shell)")));
}

TEST_P(UseSets, CountsWhatALibraryLoadsForACallWhereTheImageHasIt) {
  auto packages = kUseSetPackages;
  packages.push_back({.name = "openpyxl", .modules = {"openpyxl"}});
  packages.push_back({.name = "odfpy", .modules = {"odf"}});
  database_->put_inventory(inventory_of(1, packages), "v1");
  const test::TempDir folder;
  std::ofstream(folder.path() / "a.py") << "import pandas as pd\npd.read_excel('a.xlsx')\n";
  std::ofstream(folder.path() / "b.py") << "import pandas as pd\npd.read_excel('a.ods', engine='odf')\n";
  database_->put_scan(notebooks::scan({folder.path()}, {}, cancel_));
  const auto all = notebooks();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_THAT(all[0].distributions, ElementsAre("odfpy", "openpyxl", "pandas"));
  EXPECT_THAT(all[0].modules, ElementsAre("pandas"));
  EXPECT_THAT(all[1].distributions, ElementsAre("odfpy", "pandas"));
  const auto explained = database_->explain("openpyxl", {.window = all_days(), .image = std::nullopt});
  ASSERT_EQ(explained.use.size(), 1U);
  EXPECT_EQ(explained.use[0].notebooks, 1U);
  EXPECT_THAT(explained.evidence,
              testing::Contains(testing::Field(&Evidence::detail, testing::HasSubstr("cell 0 line 2 of "))));
}

TEST_P(UseSets, GivesMoreNotebooksThanAreReadAtOnce) {
  database_->put_inventory(inventory_of(1, kUseSetPackages), "v1");
  notebooks::ScanResult scan;
  for (unsigned i = 0; i < 700; ++i)
    scan.files.push_back(
        notebook(fmt::format("{:03}.ipynb", i), fmt::format("{}", i), {{i % 2 == 0 ? "numpy" : "pandas", "numpy"}}));
  database_->put_scan(scan);
  const auto all = notebooks();
  ASSERT_EQ(all.size(), 700U);
  for (unsigned i = 0; i < 700; ++i) {
    ASSERT_EQ(all[i].path, fmt::format("{:03}.ipynb", i));
    ASSERT_THAT(all[i].distributions, ElementsAre(i % 2 == 0 ? "numpy" : "pandas"));
  }
}

TEST_P(UseSets, GivesSessionsWithAllThatTheyTouched) {
  database_->put_inventory(inventory_of(1, kUseSetPackages), "v1");
  database_->put_inventory(inventory_of(2, {{.name = "other", .modules = {"numpy"}}}), "v2");
  session(1, "2026-11-01", 1)
      .add(import_record("numpy.linalg", Directness::kTransitive, "pandas"))
      .add(import_record("cv2"));
  session(2, "2026-11-02", 1)
      .add({.at_seconds = 1, .what = FileRecord{.path = "lib/pandas/x.csv", .executed = false}})
      .add({.at_seconds = 1, .what = FileRecord{.path = "bin/jupyter", .executed = true}});
  session(3, "2026-11-02", 2, 2).add(import_record("numpy"));
  session(4, "2026-11-03", 2);
  session(5, "2026-11-09", 2).add(import_record("numpy"));
  auto launch = start_record(6, 1, "2026-11-02");
  launch.writer = "run 0.1.0";
  SpoolWriterForTests(spool(), launch).add({.at_seconds = 0, .what = LaunchRecord{}});
  collect();

  const SnapshotQuery query{.window = {.first = day("2026-11-01"), .last = day("2026-11-08")},
                            .image = image_digest(1)};
  SessionSample sample;
  const auto found = sessions(query, 100, &sample);
  EXPECT_EQ(sample.kept, 3U) << "a session that nobody heard of says nothing";
  EXPECT_EQ(sample.given, 3U);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].day, day("2026-11-01"));
  EXPECT_THAT(found[0].distributions, ElementsAre("numpy", "opencv-python", "opencv-python-headless"));
  EXPECT_THAT(found[1].distributions, ElementsAre("jupyter", "pandas"));
  EXPECT_THAT(found[2].distributions, IsEmpty());
  EXPECT_NE(found[0].key, found[1].key);

  const auto all = sessions({.window = all_days(), .image = std::nullopt}, 100);
  ASSERT_EQ(all.size(), 5U);
  EXPECT_THAT(all[2].distributions, ElementsAre("other")) << "each by the packages of its own image";
  EXPECT_THAT(sessions({.window = all_days(), .image = image_digest(9)}, 100), IsEmpty());
}

TEST_P(UseSets, GivesASampleThatStaysTheSame) {
  database_->put_inventory(inventory_of(1, kUseSetPackages), "v1");
  for (unsigned i = 1; i <= 600; ++i) session(i * 2654435761U, "2026-11-01", 1).add(import_record("numpy"));
  collect();
  const SnapshotQuery query{.window = all_days(), .image = image_digest(1)};
  SessionSample sample;
  const auto some = sessions(query, 300, &sample);
  EXPECT_EQ(sample.kept, 600U);
  EXPECT_EQ(sample.given, 300U);
  ASSERT_EQ(some.size(), 300U);
  const auto again = sessions(query, 300);
  for (std::size_t i = 0; i < some.size(); ++i) ASSERT_EQ(some[i].key, again[i].key);
  const auto all = sessions(query, 10'000);
  ASSERT_EQ(all.size(), 600U);
  for (const auto& one : all) ASSERT_THAT(one.distributions, ElementsAre("numpy"));
}

TEST_P(UseSets, BoundsSessionsAndUsersOfASet) {
  database_->put_inventory(inventory_of(1, kUseSetPackages), "v1");
  database_->put_inventory(inventory_of(2, kUseSetPackages), "v2");
  // October: users 1 to 3 use numpy, user 3 pandas too. November: user 4 uses pandas.
  for (unsigned user = 1; user <= 3; ++user) session(user, "2026-10-05", user).add(import_record("numpy"));
  session(10, "2026-10-05", 3).add(import_record("pandas"));
  session(11, "2026-11-05", 4).add(import_record("pandas")).add(import_record("numpy"));
  session(12, "2026-11-05", 5, 2).add(import_record("cv2"));
  session(13, "2026-11-06", 6);
  collect();

  const SnapshotQuery query{.window = {.first = day("2026-10-01"), .last = day("2026-11-30")},
                            .image = image_digest(1)};
  const auto both = database_->set_use(query, {"numpy", "pandas"});
  EXPECT_EQ(both.sessions_at_least, 4U) << "three on one day, one on the other";
  EXPECT_EQ(both.sessions_at_most, 5U)
      << "four on one day; on the other both are of one session, which is all that was heard";
  EXPECT_EQ(both.users.at_least, 3U);
  EXPECT_EQ(both.users.at_most, 4U) << "user 3 used both and is one";
  const auto pandas = database_->set_use(query, {"pandas"});
  EXPECT_EQ(pandas.sessions_at_least, 2U);
  EXPECT_EQ(pandas.sessions_at_most, 2U);
  EXPECT_EQ(pandas.users.at_least, 1U);
  EXPECT_EQ(pandas.users.at_most, 2U);
  for (const auto& nobody : {database_->set_use(query, {}), database_->set_use(query, {"cv2", "unheard-of"}),
                             database_->set_use(query, {"opencv-python"}),
                             database_->set_use({.window = query.window, .image = image_digest(9)}, {"numpy"})}) {
    EXPECT_EQ(nobody.sessions_at_most, 0U);
    EXPECT_EQ(nobody.users.at_most, 0U);
  }
  const auto fleet = database_->set_use({.window = query.window, .image = std::nullopt},
                                        {"numpy", "opencv-python", "opencv-python-headless"});
  EXPECT_EQ(fleet.sessions_at_least, 5U);
  EXPECT_EQ(fleet.sessions_at_most, 5U);
  EXPECT_EQ(fleet.users.at_most, 5U);
  // Single sessions go, the counts stay.
  database_->age_out({.raw_days = 1, .aggregate_days = 800}, day("2026-12-20"));
  EXPECT_THAT(sessions(query, 100), IsEmpty());
  EXPECT_EQ(database_->set_use(query, {"numpy", "pandas"}).sessions_at_most, 5U);
}

}  // namespace
}  // namespace varve::usage
