#include "analyzer/notebooks/scan.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::notebooks {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::string notebook_of(const std::vector<std::string>& cells) {
  std::string text = R"({"cells": [)";
  for (std::size_t i = 0; i < cells.size(); ++i)
    text += fmt::format(R"({}{{"cell_type": "code", "outputs": [], "source": "{}"}})", i == 0 ? "" : ", ", cells[i]);
  return text + R"(], "nbformat": 4})";
}

class ScanTest : public ::testing::Test {
 protected:
  fs::path write(const fs::path& name, const std::string& text) {
    const auto path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  ScanResult scan_all(unsigned jobs = 1) { return scan({folder_.path()}, {.jobs = jobs}, cancel_); }

  std::string short_name(const std::string& path) const {
    return path.substr(std::min(path.size(), folder_.path().string().size() + 1));
  }
  std::vector<std::string> paths(const ScanResult& result) const {
    std::vector<std::string> names;
    for (const auto& file : result.files) names.push_back(short_name(file.path));
    return names;
  }
  static std::vector<std::string> names(const ScannedFile& file) {
    std::vector<std::string> out;
    for (const auto& import : file.imports) out.push_back(import.name + (import.local ? " (local)" : ""));
    return out;
  }
  void make_archive(const std::string& options, const std::string& name, const std::string& folder) {
    const auto command =
        fmt::format("bsdtar {} -cf '{}' -C '{}' .", options, (folder_ / name).string(), (folder_ / folder).string());
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }

  varve::test::TempDir folder_;
  CancelFlag cancel_;
};

TEST_F(ScanTest, FindsNotebooksAndScriptsInTheOrderOfTheirPaths) {
  write("b.ipynb", notebook_of({"import numpy"}));
  write("a/z.py", "import pandas\n");
  write("a.R", "library(ggplot2)\n");
  write("a-b/c.JL", "using Plots\n");
  write("r.Rmd", "text\n```{r}\nlibrary(dplyr)\n```\n```{python}\nimport torch\n```\n");
  write("notes.txt", "import nothing\n");
  const auto result = scan_all();
  EXPECT_THAT(paths(result), ElementsAre("a-b/c.JL", "a.R", "a/z.py", "b.ipynb", "r.Rmd"));
  EXPECT_EQ(result.skipped, 1u);
  EXPECT_THAT(result.errors, IsEmpty());
  std::vector<std::string> languages, formats;
  for (const auto& file : result.files) {
    languages.push_back(file.language);
    formats.push_back(file.format);
    EXPECT_EQ(file.imports.empty(), file.format == "julia" || file.format == "r") << file.path;
  }
  EXPECT_THAT(languages, ElementsAre("julia", "r", "python", "python", "r"));
  EXPECT_THAT(formats, ElementsAre("julia", "r", "script", "ipynb", "rmarkdown"));
  EXPECT_THAT(names(result.files[4]), ElementsAre("torch"));
}

TEST_F(ScanTest, LeavesOutCheckpointsPackagesEnvironmentsAndLinkedFolders) {
  write("a.ipynb", notebook_of({"import a"}));
  for (const auto* name : {".ipynb_checkpoints/a.ipynb", "lib/site-packages/x.py", "__pycache__/x.py", ".git/x.py",
                           "node_modules/x.py", "conda/conda-meta/x.py"})
    write(name, "import no\n");
  write("venv/pyvenv.cfg", "");
  write("venv/lib/x.py", "import no\n");
  fs::create_directory_symlink(folder_.path(), folder_ / "loop");
  fs::create_symlink("a.ipynb", folder_ / "linked.ipynb");
  fs::create_symlink("nowhere.ipynb", folder_ / "broken.ipynb");
  const auto result = scan_all();
  EXPECT_THAT(paths(result), ElementsAre("a.ipynb", "linked.ipynb"));
  EXPECT_EQ(result.files[1].duplicate_of, result.files[0].path);
  EXPECT_THAT(result.errors, IsEmpty());
  // What is named is scanned, whatever it is called.
  write(".ipynb_checkpoints/a.ipynb", notebook_of({"import a"}));
  EXPECT_EQ(
      scan({folder_ / ".ipynb_checkpoints", folder_ / "venv", folder_ / "loop"}, {.jobs = 1}, cancel_).files.size(),
      4u);
}

TEST_F(ScanTest, OneBadFileNeverStopsTheScan) {
  write("a.ipynb", notebook_of({"import a"}));
  write("empty.ipynb", "");
  write("half.ipynb", notebook_of({"import b", "import c"}).substr(0, 100));
  write("lfs.ipynb", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
  write("z.zip", "PK\x03\x04 and then nothing of the kind");
  ASSERT_EQ(::mkfifo((folder_ / "pipe.ipynb").c_str(), 0600), 0);
  const auto result = scan_all();
  EXPECT_THAT(paths(result), ElementsAre("a.ipynb", "half.ipynb"));
  EXPECT_THAT(names(result.files[1]), ElementsAre("b"));
  std::vector<std::string> errors;
  for (const auto& error : result.errors) errors.push_back(short_name(error.path) + ": " + error.what);
  EXPECT_THAT(errors, ElementsAre("empty.ipynb: empty file", HasSubstr("half.ipynb: the document breaks off"),
                                  HasSubstr("lfs.ipynb: a git-lfs pointer"), HasSubstr("z.zip")));
}

TEST_F(ScanTest, ReportsWhatCannotBeRead) {
  write("a/x.py", "import a\n");
  write("b.ipynb", notebook_of({"import b"}));
  write("c.py", "import c\n");
  fs::permissions(folder_ / "a", fs::perms::none);
  fs::permissions(folder_ / "c.py", fs::perms::none);
  const auto result = scan({folder_.path(), folder_ / "nowhere", "/dev/null"}, {.jobs = 1}, cancel_);
  fs::permissions(folder_ / "a", fs::perms::owner_all);
  std::vector<std::string> errors;
  for (const auto& error : result.errors) errors.push_back(error.what);
  EXPECT_THAT(errors, ::testing::Contains(HasSubstr("neither a file nor a folder")));
  if (::geteuid() == 0) return;  // root reads everything
  EXPECT_THAT(paths(result), ElementsAre("b.ipynb"));
  EXPECT_THAT(errors,
              ::testing::IsSupersetOf({HasSubstr("the folder cannot be read"), HasSubstr("Permission denied")}));
}

TEST_F(ScanTest, NotebooksWithTheSameCodeAreDuplicatesOfTheFirst) {
  write("b.ipynb", notebook_of({"import a", "x = 1"}));
  write("a/copy.ipynb",
        R"({"cells": [{"cell_type": "markdown", "source": "translated"}, {"source": ["import a"], "cell_type": )"
        R"("code"}, {"cell_type": "code", "source": "x = 1"}]})");
  write("c.ipynb", notebook_of({"import ax = 1"}));
  write("d.ipynb", notebook_of({}));
  write("e.ipynb", notebook_of({}));
  const auto result = scan_all();
  std::vector<std::string> of;
  for (const auto& file : result.files) of.push_back(short_name(file.duplicate_of));
  EXPECT_THAT(of, ElementsAre("", "a/copy.ipynb", "", "", ""));
  EXPECT_EQ(result.files[3].code_digest, Digest());
}

TEST_F(ScanTest, ModulesBesideTheNotebookAreLocal) {
  write("repo/pyproject.toml", "");
  write("repo/tools.py", "");
  write("repo/torch/train.py", "");
  write("repo/nb/a.ipynb",
        notebook_of({"import utils, models, datasets, tools, torch, numpy, empty", "%%writefile made.py\\nimport inner",
                     "from made import x\\nimport utils.deep", "from . import y"}));
  write("repo/nb/utils.py", "");
  write("repo/nb/models/__init__.py", "");
  write("repo/nb/datasets/load.py", "");
  fs::create_directories(folder_ / "repo/nb/empty");
  const ScanOptions options{
      .jobs = 1, .is_distribution = [](std::string_view name) { return name == "datasets" || name == "torch"; }};
  const auto result = scan({folder_ / "repo"}, options, cancel_);
  const auto file =
      std::find_if(result.files.begin(), result.files.end(), [](const auto& f) { return f.format == "ipynb"; });
  ASSERT_NE(file, result.files.end());
  EXPECT_THAT(names(*file),
              ElementsAre("utils (local)", "models (local)", "datasets", "tools (local)", "torch", "numpy", "empty",
                          "inner", "made.x (local)", "utils.deep (local)", ".y (local)"));
  // Without the knowledge that a distribution has the name, the folder is taken for what is meant.
  const auto unknowing = scan({folder_ / "repo/nb/a.ipynb"}, {.jobs = 1}, cancel_);
  EXPECT_THAT(names(unknowing.files[0])[2], "datasets (local)");
  EXPECT_THAT(names(unknowing.files[0])[3], "tools") << "it was found above the folder that was given";
}

TEST_F(ScanTest, ReadsArchivesAsFolders) {
  write("in/repo/a.ipynb", notebook_of({"import numpy, helper, above, other"}));
  write("in/repo/helper.py", "");
  write("in/above.py", "import pandas\n");
  write("in/other/x.txt", "");
  write("in/repo/.ipynb_checkpoints/a.ipynb", notebook_of({"import no"}));
  write("in/inner.zip", "PK");
  for (const auto* kind :
       {"x.zip --format zip", "x.tar.gz -z", "x.tar.xz -J", "x.tar.zst --zstd", "x.tar --format pax"}) {
    SCOPED_TRACE(kind);
    const std::string text = kind;
    const auto name = text.substr(0, text.find(' '));
    make_archive(text.substr(text.find(' ')), name, "in");
    for (const unsigned jobs : {1u, 3u}) {
      const auto result = scan({folder_ / name}, {.jobs = jobs}, cancel_);
      EXPECT_THAT(result.errors, IsEmpty());
      EXPECT_THAT(paths(result),
                  UnorderedElementsAre(name + "!./above.py", name + "!./repo/a.ipynb", name + "!./repo/helper.py"));
      EXPECT_EQ(result.skipped, 3u);
      for (const auto& file : result.files) {
        if (file.format != "ipynb") continue;
        EXPECT_THAT(names(file), ElementsAre("numpy", "helper (local)", "above (local)", "other"));
      }
    }
    fs::remove(folder_ / name);
  }
}

TEST_F(ScanTest, StreamsLargeEntriesOfArchivesAndKeepsOrderBetweenThem) {
  const auto large = R"({"cells": [{"cell_type": "code", "outputs": [")" + std::string(3 << 20, 'A') +
                     R"("], "source": "import large"}]})";
  write("in/1.ipynb", notebook_of({"import one"}));
  write("in/2.ipynb", large);
  write("in/3.ipynb", large);
  write("in/4.ipynb", notebook_of({"import one"}));
  const auto command =
      fmt::format("cd '{}' && bsdtar -czf ../x.tar.gz 1.ipynb 2.ipynb 3.ipynb 4.ipynb", (folder_ / "in").string());
  ASSERT_EQ(std::system(command.c_str()), 0);
  for (const unsigned jobs : {1u, 4u}) {
    std::vector<std::string> seen;
    scan({folder_ / "x.tar.gz"}, {.jobs = jobs}, cancel_, [&](ScannedFile&& file) {
      seen.push_back(short_name(file.path) + " " + file.imports.at(0).name + " " + short_name(file.duplicate_of));
    });
    EXPECT_THAT(seen, ElementsAre("x.tar.gz!1.ipynb one ", "x.tar.gz!2.ipynb large ",
                                  "x.tar.gz!3.ipynb large x.tar.gz!2.ipynb", "x.tar.gz!4.ipynb one x.tar.gz!1.ipynb"));
  }
}

TEST_F(ScanTest, GivesTheSameWithAnyNumberOfJobs) {
  for (int i = 0; i < 500; ++i)
    write(fmt::format("{}/{}.ipynb", i % 7, i), i % 50 == 3 ? "{" : notebook_of({fmt::format("import m{}", i % 90)}));
  const auto describe = [&](unsigned jobs) {
    std::vector<std::string> lines;
    auto result = scan({folder_.path()}, {.jobs = jobs}, cancel_, [&](ScannedFile&& file) {
      lines.push_back(file.path + " " + file.imports.at(0).name + " " + file.duplicate_of);
    });
    for (const auto& error : result.errors) lines.push_back(error.path + error.what);
    lines.push_back(std::to_string(result.bytes));
    return lines;
  };
  const auto one = describe(1);
  EXPECT_EQ(one.size(), 501u);
  for (const unsigned jobs : {2u, 3u, 8u}) EXPECT_EQ(describe(jobs), one) << jobs;
}

TEST_F(ScanTest, EachFileOnceWhenPathsOverlap) {
  write("a/b/c.ipynb", notebook_of({"import a"}));
  write("ab.ipynb", notebook_of({"import b"}));
  EXPECT_EQ(scan({folder_ / "a/b", folder_ / "a/", folder_ / "a/b/c.ipynb", folder_ / "ab.ipynb", folder_ / "a"},
                 {.jobs = 1}, cancel_)
                .files.size(),
            2u);
}

TEST_F(ScanTest, StopsWhenCancelledOrWhenTheTakerThrows) {
  for (int i = 0; i < 200; ++i) write(fmt::format("{}.ipynb", i), notebook_of({"import a"}));
  for (const unsigned jobs : {1u, 4u}) {
    int taken = 0;
    EXPECT_THROW(scan({folder_.path()}, {.jobs = jobs}, cancel_,
                      [&](ScannedFile&&) {
                        if (++taken == 20) throw std::runtime_error("full");
                      }),
                 std::runtime_error);
    EXPECT_EQ(taken, 20);
  }
  cancel_.cancel();
  EXPECT_THROW(scan_all(1), Cancelled);
  EXPECT_THROW(scan_all(4), Cancelled);
}

TEST_F(ScanTest, WhatTheTakerThrowsIsNoFaultOfTheArchive) {
  for (int i = 0; i < 200; ++i) write(fmt::format("in/{}.ipynb", i), notebook_of({"import a"}));
  make_archive("-z", "x.tar.gz", "in");
  for (const unsigned jobs : {1u, 4u})
    EXPECT_THROW(scan({folder_ / "x.tar.gz"}, {.jobs = jobs}, cancel_,
                      [](ScannedFile&&) { throw CorruptData("the database is damaged"); }),
                 CorruptData);
}

TEST_F(ScanTest, ReadsPastAHugeStringThatIsMostlyAHole) {
  const auto path =
      write("huge.ipynb",
            R"({"cells": [{"cell_type": "code", "source": "import before"}, {"cell_type": "code", "outputs": [")");
  constexpr std::uint64_t kHole = std::uint64_t(128) << 20;
  {
    const auto fd = open_file(path, O_WRONLY);
    const std::string end = R"("], "source": "import after"}]})";
    pwrite_all(fd.get(), kHole, std::as_bytes(std::span(end)),
               "huge.ipynb");  // what lies between reads as NUL bytes inside of a string
  }
  const auto result = scan_all();
  ASSERT_EQ(result.files.size(), 1u);
  EXPECT_THAT(names(result.files[0]), ElementsAre("before", "after"));
  EXPECT_GT(result.bytes, kHole);
}

TEST_F(ScanTest, ReportsNotebooksThatAreTooLarge) {
  write("a.ipynb", notebook_of({"import a"}));
  write("b.ipynb", notebook_of({"import b", "import c"}));
  const auto result = scan({folder_.path()}, {.jobs = 1, .max_notebook_bytes = 100}, cancel_);
  EXPECT_THAT(paths(result), ElementsAre("a.ipynb"));
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_THAT(result.errors[0].what, HasSubstr("larger than 100 bytes"));
}

TEST_F(ScanTest, ScriptsAreReadInTheEncodingThatTheyDeclare) {
  write("a.py", "#!/usr/bin/python\n# -*- coding: ISO_8859-1 -*-\nimport a\nna\xefve = '\xe9'\nimport b\n");
  write("b.py", "# vim: set fileencoding=cp1251 :\nx = '\xe9'\nimport c\n");
  write("c.py", "x = 1\n# coding: latin-1\ny = '\xe9'\nimport d\n");  // not before code
  write("d.r", "# coding: latin-1\nx <- '\xe9'\n");
  const auto result = scan_all();
  ASSERT_EQ(result.files.size(), 4u);
  EXPECT_EQ(result.files[0].imports.size(), 2u);
  EXPECT_EQ(result.files[1].imports.size(), 1u);
  ASSERT_EQ(result.errors.size(), 3u) << "of a.py nothing is to be said";
  EXPECT_THAT(result.errors[0].what, HasSubstr("written in cp1251"));
  EXPECT_THAT(result.errors[1].what, HasSubstr("not UTF-8"));
  EXPECT_THAT(result.errors[2].what, HasSubstr("not UTF-8"));
}

TEST_F(ScanTest, ScriptsHaveCellsWhereTheyAreMarked) {
  write("a.py", "# %%\nimport a\n# %% [markdown]\n# import no\n# %%\n\nimport b\n%pip install c\n");
  write("b.py", "\xef\xbb\xbfimport a\r\nx = '\xff'\n");
  const auto result = scan_all();
  ASSERT_EQ(result.files.size(), 2u);
  EXPECT_EQ(result.files[0].code_cells, 2u);
  const auto& imports = result.files[0].imports;
  ASSERT_GE(imports.size(), 2u);
  EXPECT_EQ(imports[1].name, "b");
  EXPECT_EQ(imports[1].cell, 2u);
  EXPECT_EQ(imports[1].line, 2u);
  ASSERT_EQ(result.files[0].installs.size(), 1u);
  EXPECT_EQ(result.files[0].installs[0].package, "c");
  EXPECT_EQ(result.files[1].imports.at(0).cell, 0u);
  EXPECT_THAT(result.errors.at(0).what, HasSubstr("not UTF-8"));
}

TEST_F(ScanTest, ReadsEachCellInItsOwnLanguage) {
  write("a.ipynb", R"json({"metadata": {"kernelspec": {"name": "sos", "language": "sos"}}, "cells": [
    {"cell_type": "code", "metadata": {"kernel": "Python3"}, "source": "import a"},
    {"cell_type": "code", "metadata": {"kernel": "R"}, "source": "library(bb)"},
    {"cell_type": "code", "metadata": {"kernel": "Bash"}, "source": "import no"},
    {"cell_type": "code", "metadata": {"kernel": "ir"}, "source": "library(cc)"},
    {"cell_type": "code", "metadata": {"kernel": "SoS"}, "source": "import d"}]})json");
  write("b.ipynb",
        R"json({"metadata": {"kernelspec": {"name": "xcpp17", "language": "C++17"}}, "cells": [{"cell_type": )json"
        R"json("code", "source": "import no"}]})json");
  const auto result = scan_all();
  EXPECT_THAT(names(result.files.at(0)), ElementsAre("a", "d"));
  EXPECT_EQ(result.files[0].imports.at(1).cell, 5u);
  EXPECT_EQ(result.files[1].language, "c++17");
  EXPECT_THAT(result.files[1].imports, IsEmpty());
}

}  // namespace
}  // namespace varve::notebooks
