#include "core/base/threads/ordered_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace varve {
namespace {

using ::testing::ElementsAre;
using Pool = OrderedPool<int, int>;

class OrderedPoolTest : public ::testing::Test {
 protected:
  std::vector<int> out_;
  const std::function<void(int)> deliver_ = [this](int result) { out_.push_back(result); };
};

TEST_F(OrderedPoolTest, GivesResultsInTheOrderOfTheWork) {
  for (const unsigned threads : {0u, 1u, 2u, 7u}) {
    out_.clear();
    Pool pool(threads, 10, [] { return [](int item) { return 2 * item; }; });
    for (int i = 0; i < 1000; ++i) pool.add(int(i), deliver_);
    pool.drain(deliver_);
    ASSERT_EQ(out_.size(), 1000u);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(out_[std::size_t(i)], 2 * i);
    EXPECT_TRUE(pool.empty());
  }
}

TEST_F(OrderedPoolTest, AFirstThatIsLateKeepsTheOthersWaiting) {
  std::latch second_is_done(1);
  Pool pool(2, 4, [&] {
    return [&](int item) {
      if (item == 1) second_is_done.wait();  // would wait for ever on one thread
      if (item == 2) second_is_done.count_down();
      return item;
    };
  });
  pool.add(1, deliver_);
  pool.add(2, deliver_);
  second_is_done.wait();
  pool.add_done(3, deliver_);
  pool.drain(deliver_);
  EXPECT_THAT(out_, ElementsAre(1, 2, 3));
}

TEST_F(OrderedPoolTest, HoldsNoMoreThanItMay) {
  std::atomic<int> begun = 0;
  Pool pool(3, 5, [&] {
    return [&](int item) {
      ++begun;
      return item;
    };
  });
  for (int i = 0; i < 100; ++i) {
    pool.add(int(i), deliver_);
    EXPECT_LE(begun - int(out_.size()), 5);
  }
  while (pool.has_room()) pool.add(0);
  EXPECT_FALSE(pool.has_room());
  pool.take();
  EXPECT_TRUE(pool.has_room());
}

TEST_F(OrderedPoolTest, AFailureComesInItsTurnAndTheRestGoesOn) {
  Pool pool(2, 4, [] {
    return [](int item) {
      if (item == 2) throw std::runtime_error("two");
      return item;
    };
  });
  for (const int item : {1, 2, 3}) pool.add(int(item));
  EXPECT_EQ(pool.take(), 1);
  EXPECT_THROW(pool.take(), std::runtime_error);
  EXPECT_EQ(pool.take(), 3);
}

TEST_F(OrderedPoolTest, EachThreadMakesItsWorker) {
  std::atomic<int> made = 0;
  {
    std::latch all(3);
    Pool pool(3, 3, [&] {
      ++made;
      return [&](int item) {
        all.arrive_and_wait();
        return item;
      };
    });
    for (const int item : {1, 2, 3}) pool.add(int(item));
    pool.drain(deliver_);
  }
  EXPECT_EQ(made, 3);
  Pool broken(1, 1, []() -> Pool::Worker { throw std::runtime_error("no worker"); });
  broken.add(1);
  EXPECT_THROW(broken.take(), std::runtime_error);
}

}  // namespace
}  // namespace varve
