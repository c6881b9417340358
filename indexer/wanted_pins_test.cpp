#include "indexer/wanted_pins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::indexer {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class WantedPinsTest : public ::testing::Test {
 protected:
  std::vector<WantedPin> read(const std::string& text, const std::string& where = "registry.example/team/science") {
    write_file_atomically(dir_.path() / "pins.toml", as_bytes(text));
    return read_wanted_pins(dir_.path() / "pins.toml", where);
  }

  test::TempDir dir_;
};

TEST_F(WantedPinsTest, AreReadInTheOrderOfTheFile) {
  const auto wanted = read(
      "[[pin]]\nimage = 'other.example/image:1'\nname = 'v1'\nreason = 'course'\nowner = 'ann'\n"
      "[[pin]]\nimage = ':2'\nreason = 'paper'\nowner = 'bob'\n");
  ASSERT_EQ(wanted.size(), 2u);
  EXPECT_EQ(wanted[0].image, "other.example/image:1");
  EXPECT_EQ(wanted[0].name, "v1");
  EXPECT_EQ(wanted[0].by, "ann");
  EXPECT_EQ(wanted[1].image, "docker://registry.example/team/science:2");
  EXPECT_EQ(wanted[1].name, "");
  EXPECT_EQ(wanted[1].reason, "paper");
}

TEST_F(WantedPinsTest, SayWhoAndWhyAndNothingElse) {
  EXPECT_THAT([&] { read("[[pin]]\nimage = ':1'\nowner = 'ann'\nreason = ' '\n"); },
              ThrowsMessage<CorruptData>(HasSubstr("'reason' is empty")));
  EXPECT_THROW(read("[[pin]]\nimage = ':1'\nreason = 'x'\n"), CorruptData);
  EXPECT_THROW(read("[[pin]]\nimage = ':1'\nreason = 'x'\nowner = 'ann'\nkeep = true\n"), CorruptData);
  EXPECT_THROW(read("pins = 1\n"), CorruptData);
  EXPECT_THROW(read(""), CorruptData);
}

TEST_F(WantedPinsTest, AreOfARepositoryThatWasNamed) {
  EXPECT_THAT([&] { read("[[pin]]\nimage = ':1'\nreason = 'x'\nowner = 'ann'\n", ""); },
              ThrowsMessage<UsageError>(HasSubstr("none is named")));
}

}  // namespace
}  // namespace varve::indexer
