#pragma once
// What suites of tests with sessions begin with: a root folder that is made once, and a folder of each test's own.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "fuse/session/session.h"
#include "testing/temp_dir.h"

namespace varve::test {

// One suite at a time. Everybody may enter both folders.
template <typename Parameter>
class SharedRootTest : public ::testing::TestWithParam<Parameter> {
 protected:
  SharedRootTest() { ::chmod(dir_.path().c_str(), 0755); }

  // In SetUpTestSuite(): make(folder) puts in there what all tests share. As root alone; others' tests are skipped.
  template <typename Make>
  static void share(const Make& make) {
    if (::geteuid() != 0) return;
    shared_ = std::make_unique<TempDir>();
    ::chmod(shared_->path().c_str(), 0755);
    make(shared_->path());
  }
  static void TearDownTestSuite() { shared_.reset(); }

  // Of a shell script, with its state in `root`.
  static fuse::SessionRequest script_request(const std::filesystem::path& root, const std::filesystem::path& lower,
                                             const std::string& script, const std::string& runtime) {
    fuse::SessionRequest request;
    request.root = root;
    request.lower = lower;
    request.image = "oci:/image";
    request.image_digest = "sha256:0";
    request.options.command = {"sh", "-c", script};
    request.runtime = runtime;
    return request;
  }

  TempDir dir_;
  inline static std::unique_ptr<TempDir> shared_;
};

}  // namespace varve::test
