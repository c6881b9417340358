#include "core/base/threads/done_once.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace varve {
namespace {

TEST(DoneOnceTest, OneOfManyDoesIt) {
  DoneOnce once;
  int done = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        once.run([&] { ++done; });
        EXPECT_EQ(done, 1) << "nobody goes on before it is done";
      });
  }
  EXPECT_TRUE(once.is_done());
  EXPECT_EQ(done, 1);
}

TEST(DoneOnceTest, WhatFailsIsTriedAgain) {
  DoneOnce once;
  EXPECT_THROW(once.run([] { throw std::runtime_error("no room"); }), std::runtime_error);
  EXPECT_FALSE(once.is_done());
  int done = 0;
  for (int i = 0; i < 2; ++i) once.run([&] { ++done; });
  EXPECT_TRUE(once.is_done());
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace varve
