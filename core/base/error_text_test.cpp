#include "core/base/error_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

namespace varve {
namespace {

namespace fs = std::filesystem;

template <typename Deed>
std::string text_of(Deed&& deed) {
  try {
    deed();
  } catch (const std::exception& error) {
    return error_text(error);
  }
  return "nothing failed";
}

TEST(ErrorText, SaysOfFilesWhichAndWhyInOurWords) {
  EXPECT_EQ(text_of([] { static_cast<void>(fs::canonical("/nonexist/x")); }), "/nonexist/x: No such file or directory");
  EXPECT_EQ(text_of([] { fs::directory_iterator("/nonexist"); }),
            "/nonexist: cannot list the folder: No such file or directory");
  EXPECT_EQ(text_of([] { fs::create_directories("/proc/self/status/x"); }),
            "/proc/self/status/x: cannot create the folder: Not a directory");
  EXPECT_EQ(text_of([] { fs::rename("/nonexist", "/tmp/nowhere"); }),
            "/nonexist and /tmp/nowhere: cannot rename: No such file or directory");
}

TEST(ErrorText, LeavesOtherMessagesAsTheyAre) {
  EXPECT_EQ(error_text(std::runtime_error("image x: no such tag")), "image x: no such tag");
}

}  // namespace
}  // namespace varve
