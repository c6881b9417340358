#include "fuse/mount/erofs_mount.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace varve::fuse {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string why(int error, const std::string& release) {
  return why_no_erofs(std::system_error(error, std::generic_category(), "mount x"), release, "tmpfs",
                      "/dev/shm/r/trees/ab.erofs");
}

TEST(ErofsMount, SaysWhatIsMissingAndNotWhatIsThere) {
  EXPECT_THAT(why(ENOTBLK, "6.1.0-37-amd64"), HasSubstr("needs Linux 6.12 with EROFS, and this is 6.1.0-37-amd64"));
  EXPECT_THAT(why(ENODEV, "6.18.44"), HasSubstr("module erofs"));
  const auto of_file_system = why(ENOTBLK, "6.18.44");
  EXPECT_THAT(of_file_system, HasSubstr("files on tmpfs, where /dev/shm/r/trees lies"));
  EXPECT_THAT(of_file_system, HasSubstr("--root"));
  EXPECT_THAT(of_file_system, Not(HasSubstr("6.12")));
  EXPECT_THAT(why(EPERM, "7.0.1"), HasSubstr("Operation not permitted"));
}

}  // namespace
}  // namespace varve::fuse
