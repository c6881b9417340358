#pragma once
// What an operation is refused with.
#include <string>

#include "core/base/errors.h"

namespace varve::test {

// The message of the error that ends it, "" if none does. Errors of other kinds go on to the caller.
template <typename Kind = Error, typename Operation>
std::string refusal_of(Operation&& operation) {
  try {
    operation();
  } catch (const Kind& error) {
    return error.what();
  }
  return {};
}

}  // namespace varve::test
