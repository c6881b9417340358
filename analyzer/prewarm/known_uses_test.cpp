#include "analyzer/prewarm/known_uses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

namespace varve::prewarm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

usage::DistributionUse use(std::string name, std::uint64_t sessions, std::uint64_t file_sessions = 0) {
  usage::DistributionUse one;
  one.name = std::move(name);
  one.sessions = sessions;
  one.file_sessions = file_sessions;
  return one;
}

// A database that knows two images, of one of which no session was heard, and notes what it is asked.
class KnownUsesTest : public ::testing::Test {
 protected:
  KnownUsesTest() {
    for (const auto& [digest, launched, heard] : {std::tuple(heard_, 9, 7), std::tuple(silent_, 3, 0)}) {
      auto& facts = all_.images.emplace_back();
      facts.digest = digest;
      facts.launched = launched;
      facts.heard = heard;
    }
    all_.distributions = {use("numpy", 40, 2), use("ffmpeg", 0, 6)};
    of_heard_.distributions = {use("numpy", 7)};
    of_heard_.distributions[0].modules = {{"numpy.fft", 2}};
  }
  usage::Snapshot answer(const std::optional<Digest>& image) {
    asked_.push_back(image ? image->to_string() : "all");
    return image ? of_heard_ : all_;
  }
  std::map<std::string, std::uint64_t> sessions(const std::map<std::string, KnownUse>& uses) const {
    std::map<std::string, std::uint64_t> counts;
    for (const auto& [name, one] : uses) counts[name] = one.sessions;
    return counts;
  }

  const Digest heard_ = digest_of("heard"), silent_ = digest_of("silent"), unknown_ = digest_of("unknown");
  usage::Snapshot all_, of_heard_;
  std::vector<std::string> asked_;
};

TEST_F(KnownUsesTest, CountsSessionsThatWereStarted) {
  const KnownUses uses([this](const auto& image) { return answer(image); });
  EXPECT_EQ(uses.sessions_of(heard_), 9u);
  EXPECT_EQ(uses.sessions_of(silent_), 3u);
  EXPECT_EQ(uses.sessions_of(unknown_), 0u);
  EXPECT_THAT(asked_, ElementsAre("all"));
}

TEST_F(KnownUsesTest, AnImageWhoseSessionsWereHeardSpeaksForItself) {
  const KnownUses uses([this](const auto& image) { return answer(image); });
  const auto known = uses.distributions_of(heard_);
  EXPECT_THAT(sessions(known), ElementsAre(Pair("numpy", 7)));
  EXPECT_THAT(known.at("numpy").modules, ElementsAre(Pair("numpy.fft", 2)));
  EXPECT_THAT(asked_, ElementsAre("all", heard_.to_string()));
}

TEST_F(KnownUsesTest, AnotherIsUsedAsAllTheOthersAre) {
  const KnownUses uses([this](const auto& image) { return answer(image); });
  for (const auto& image : {silent_, unknown_}) {
    EXPECT_THAT(sessions(uses.distributions_of(image)), ElementsAre(Pair("ffmpeg", 6), Pair("numpy", 40)))
        << "files that were opened are use, too";
  }
  EXPECT_THAT(asked_, ElementsAre("all")) << "nobody was asked of an image of which nothing is known";
}

TEST_F(KnownUsesTest, AnEmptyDatabaseKnowsNothing) {
  const KnownUses uses([](const auto&) { return usage::Snapshot(); });
  EXPECT_EQ(uses.sessions_of(heard_), 0u);
  EXPECT_THAT(uses.distributions_of(heard_), IsEmpty());
}

}  // namespace
}  // namespace varve::prewarm
