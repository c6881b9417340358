// What was found out by starting things of an image is kept as it was given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/usage/internal/schema.h"
#include "core/base/errors.h"
#include "tests/usage/usage_test_support.h"

namespace varve::usage {
namespace {

Probe probe_of(unsigned image) {
  Probe probe;
  probe.image = image_digest(image);
  probe.day = 20778;
  probe.items = {
      {.kind = ProbedKind::kImport,
       .name = "keras",
       .distribution = "keras",
       .outcome = "ok",
       .detail = "",
       .missed = {{"numpy.a", "numpy.b"}}},
      {.kind = ProbedKind::kImport,
       .name = "numpy",
       .distribution = "numpy",
       .outcome = "ok",
       .detail = "",
       .missed = {{}}},
      {.kind = ProbedKind::kScript, .name = "tool", .distribution = "tool", .outcome = "exit 2", .detail = "usage:"},
      {.kind = ProbedKind::kKernel, .name = "python3", .distribution = "", .outcome = "no reply", .detail = "dead"}};
  probe.edges = {{.kind = ProbeEdge::Kind::kLoads, .item = 0, .to = "cv2", .to_distribution = "opencv-python"},
                 {.kind = ProbeEdge::Kind::kTries, .item = 0, .to = "pyarrow", .to_distribution = "pyarrow"},
                 {.kind = ProbeEdge::Kind::kRuns, .item = 2, .to = "", .to_distribution = "click"}};
  return probe;
}

class KeptProbe : public DatabaseFixture {};
VARVE_FOR_BOTH_DATABASES(KeptProbe);

TEST_P(KeptProbe, IsReadAsItWasWritten) {
  EXPECT_FALSE(database_->probe(image_digest(1)));
  database_->put_probe(probe_of(1));
  database_->put_probe(probe_of(2));
  EXPECT_EQ(database_->probe(image_digest(1)), probe_of(1));
  EXPECT_EQ(database_->probe(image_digest(2)), probe_of(2));
  EXPECT_FALSE(database_->probe(image_digest(3)));
  EXPECT_FALSE(database_->probe(image_digest(1))->items[2].missed) << "it is not known, which is not the same as none";
  EXPECT_TRUE(database_->snapshot({.window = all_days(), .image = std::nullopt}).images.empty())
      << "an image that nobody used stays one";
}

TEST_P(KeptProbe, IsReplacedAsAWhole) {
  database_->put_probe(probe_of(1));
  auto later = probe_of(1);
  later.day = 20780;
  later.items.resize(1);
  later.edges.resize(1);
  database_->put_probe(later);
  EXPECT_EQ(database_->probe(image_digest(1)), later);
}

TEST_P(KeptProbe, WithoutItsItemsIsRefused) {
  if (GetParam() != Kind::kSqlite) GTEST_SKIP() << "one database is enough for rows that somebody else wrote";
  auto probe = probe_of(1);
  probe.edges[0].item = 4;
  sort_edges(probe.edges);
  database_->put_probe(probe);
  EXPECT_THROW(database_->probe(image_digest(1)), CorruptData);
}

}  // namespace
}  // namespace varve::usage
