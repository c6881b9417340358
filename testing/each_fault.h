#pragma once
// Every kind of fault at every call that a watched life makes, one after the other.
#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <string>

#include <fmt/format.h>

#include "testing/disk_recorder.h"

namespace varve::test {

enum class FaultOf : std::uint8_t { kWrites, kReads };
struct FaultKind {
  int error = 0;
  bool sticky = false;
};

// Calls attempt(fault, story) until a check of the test has failed.
template <typename Attempt>
void for_each_fault(FaultOf of, std::size_t calls, std::initializer_list<FaultKind> kinds, Attempt&& attempt) {
  const bool reads = of == FaultOf::kReads;
  for (std::size_t call = 0; call < calls; ++call) {
    for (const auto& [error, sticky] : kinds) {
      const std::string what = error != 0 ? std::strerror(error) : reads ? "a part only" : "a short write";
      const auto story = fmt::format("{} {}: {}{}", reads ? "read" : "call", call, what,
                                     !sticky ? ""
                                     : reads ? ", for good"
                                             : ", and all that need room after it");
      attempt(DiskFault{.call = call, .error = error, .sticky = sticky, .of_reads = reads}, story);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace varve::test
