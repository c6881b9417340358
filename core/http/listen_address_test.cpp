#include "core/http/listen_address.h"

#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve {
namespace {

TEST(ListenAddressTest, ReadsWhatItWrites) {
  for (const std::string text :
       {"unix:/run/varve/metrics.sock", "127.0.0.1:9100", "0.0.0.0:80", "[::1]:9100", "[::]:0"})
    EXPECT_EQ(ListenAddress::parse(text).to_string(), text);
  EXPECT_EQ(ListenAddress::parse("localhost:9100").to_string(), "127.0.0.1:9100");
}

TEST(ListenAddressTest, RefusesWhatIsNone) {
  for (const std::string text :
       {"", "9100", ":9100", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "127.1:80",
        "::1:80", "[127.0.0.1]:80", "[::1]80", "registry.example:80", "unix:", "unix:metrics.sock", "unix:/run/",
        "127.0.0.1:80 ", "[::1%lo]:80"})
    EXPECT_THROW(ListenAddress::parse(text), UsageError) << text;
}

TEST(ListenAddressTest, KnowsWhatOnlyThisMachineCanReach) {
  for (const auto* text : {"unix:/a", "127.0.0.1:1", "127.8.9.10:1", "[::1]:1", "localhost:1"})
    EXPECT_TRUE(ListenAddress::parse(text).is_of_this_machine()) << text;
  for (const auto* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "128.0.0.1:1", "[::ffff:127.0.0.1]:1", "[fe80::1]:1"})
    EXPECT_FALSE(ListenAddress::parse(text).is_of_this_machine()) << text;
}

TEST(ListenAddressTest, TakesAPortThatIsFreeAndSaysWhich) {
  auto address = ListenAddress::parse("127.0.0.1:0");
  const auto first = listen_on(address);
  EXPECT_GT(address.port, 0);
  auto again = address;
  EXPECT_THROW(listen_on(again), std::system_error);
}

TEST(ListenAddressTest, TakesThePlaceOfASocketThatWasLeftAndOfNothingElse) {
  const test::TempDir dir;
  auto address = ListenAddress::parse("unix:" + (dir.path() / "s").string());
  listen_on(address).reset();
  EXPECT_NO_THROW(listen_on(address));
  EXPECT_EQ(std::filesystem::status(address.socket).permissions() & std::filesystem::perms::mask,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  auto file = ListenAddress::parse("unix:" + (dir.path() / "file").string());
  write_file_atomically(dir.path() / "file", as_bytes("kept"));
  EXPECT_THROW(listen_on(file), UsageError);
  EXPECT_EQ(std::filesystem::file_size(dir.path() / "file"), 4u);
}

}  // namespace
}  // namespace varve
