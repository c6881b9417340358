#pragma once
// Reading whole blobs that several sources have.
#include <utility>

#include "core/base/errors.h"
#include "core/oci/repository.h"

namespace varve::oci {

// For who reads a blob whole, and can begin anew: one source's wrong copy is no damage while another has the right one.
class SourceTurns {
 public:
  SourceTurns(Repository& repository, Descriptor blob) : repository_(repository), blob_(std::move(blob)) {}

  // What came was wrong; who gave it is asked last from now on. True: begin anew. False: each source had its turn.
  bool next(const CorruptData& wrong);

 private:
  Repository& repository_;
  const Descriptor blob_;
  unsigned taken_ = 0;
};

}  // namespace varve::oci
