#pragma once
// One certain index of an image, where load_index() takes the best.
#include "core/index/local_index.h"

namespace varve::index {

// The index with that manifest, which an earlier call of load_index() has chosen: all that it loads is on this machine,
// so that neither the image's repository nor a newer index that has come since matters. Throws NotFound if it is here
// no longer.
// kAlready: it serves sessions since an earlier daemon, and goes on. Else trust::Untrusted is thrown where it does not
// count any more.
enum class Judged : std::uint8_t { kNow, kAlready };
LoadedIndex load_this_index(LocalIndex& local, const oci::Image& image, const Digest& index_manifest, Judged judged);

}  // namespace varve::index
