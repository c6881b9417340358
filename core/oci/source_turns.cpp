#include "core/oci/source_turns.h"

namespace varve::oci {

bool SourceTurns::next(const CorruptData& wrong) {
  if (++taken_ >= repository_.source_count()) return false;
  repository_.note_wrong_bytes(blob_, {.offset = 0, .length = blob_.size}, wrong.what());
  return true;
}

}  // namespace varve::oci
