#include "testing/temp_dir.h"

#include <cstdlib>
#include <string>

#include "core/base/errors.h"

namespace varve::test {

TempDir::TempDir() {
  auto pattern = (std::filesystem::temp_directory_path() / "varve-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) fail_errno("make a folder {}", pattern);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace varve::test
