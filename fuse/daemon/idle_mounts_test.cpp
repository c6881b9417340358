#include "fuse/daemon/idle_mounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/files/file.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const IdleTime kNow{std::chrono::hours(100)};

IdleMount idle_for(const std::string& dir, seconds time) { return {.dir = dir, .since = kNow - time}; }

TEST(IdleMounts, GoWhenTheirTimeIsOver) {
  const std::vector<IdleMount> idle{idle_for("/b", seconds(899)), idle_for("/a", seconds(900)),
                                    idle_for("/c", seconds(1000))};
  EXPECT_THAT(idle_mounts_to_end(idle, seconds(900), kNow, false), ElementsAre("/c", "/a"));
  EXPECT_THAT(idle_mounts_to_end(idle, seconds(1001), kNow, false), IsEmpty());
  EXPECT_THAT(idle_mounts_to_end({}, seconds(900), kNow, true), IsEmpty());
}

TEST(IdleMounts, GoOneALookWhereRoomIsShortTheLongestIdleFirst) {
  const std::vector<IdleMount> idle{idle_for("/b", seconds(1)), idle_for("/a", seconds(3)), idle_for("/c", seconds(2))};
  EXPECT_THAT(idle_mounts_to_end(idle, seconds(900), kNow, true), ElementsAre("/a"));
  EXPECT_THAT(idle_mounts_to_end(idle, seconds(3), kNow, true), ElementsAre("/a", "/c"));
}

TEST(IdleMounts, AreNeverMoreThanSoMany) {
  std::vector<IdleMount> idle;
  for (std::size_t i = 0; i < kMaxIdleMounts + 2; ++i)
    idle.push_back(idle_for("/" + std::to_string(i), seconds(long(i))));
  EXPECT_THAT(idle_mounts_to_end(idle, seconds(900), kNow, false), ElementsAre("/17", "/16"));
}

TEST(IdleMounts, OneOfALaterTimeStays) {
  EXPECT_THAT(idle_mounts_to_end({idle_for("/a", seconds(-100))}, seconds(900), kNow, false), IsEmpty());
}

class MemoryPressureTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((dir_.path() / name).parent_path());
    write_file_atomically(dir_.path() / name, as_bytes(text));
  }
  void waits(std::uint64_t some_us) const {
    write("pressure/memory", "some avg10=99.00 avg60=99.00 avg300=99.00 total=" + std::to_string(some_us) +
                                 "\nfull avg10=99.00 avg60=99.00 avg300=99.00 total=0\n");
  }
  test::TempDir dir_;
  MemoryPressure pressure_{dir_.path()};
};

TEST_F(MemoryPressureTest, IsWhatProcessesHaveWaitedSinceTheLastLook) {
  waits(5'000'000);
  EXPECT_FALSE(pressure_.look(kNow)) << "of what was before nobody knows when";
  waits(5'099'000);
  EXPECT_FALSE(pressure_.look(kNow + seconds(1)));
  waits(5'200'000);
  EXPECT_TRUE(pressure_.look(kNow + seconds(2)));
  EXPECT_FALSE(pressure_.look(kNow + seconds(3))) << "nobody waits any more";
  waits(9'000'000);
  EXPECT_FALSE(pressure_.look(kNow + seconds(300))) << "some of that was long ago";
  waits(10);
  EXPECT_FALSE(pressure_.look(kNow + seconds(301))) << "a count that goes back is none";
}

TEST_F(MemoryPressureTest, IsMemoryThatIsShortWhereWaitsAreNotCounted) {
  EXPECT_FALSE(pressure_.look(kNow)) << "nothing is known";
  write("meminfo", "MemTotal:       1000000 kB\nMemFree:          100 kB\nMemAvailable:     50000 kB\n");
  EXPECT_FALSE(pressure_.look(kNow));
  write("meminfo", "MemTotal:       1000000 kB\nMemFree:          100 kB\nMemAvailable:     49999 kB\n");
  EXPECT_TRUE(pressure_.look(kNow));
  write("pressure/memory", "");  // as where PSI is switched off
  EXPECT_TRUE(pressure_.look(kNow + milliseconds(1)));
  write("meminfo", "MemAvailable: many\n");
  EXPECT_FALSE(pressure_.look(kNow));
}

}  // namespace
}  // namespace varve::fuse
