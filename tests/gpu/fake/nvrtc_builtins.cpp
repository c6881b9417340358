// libnvrtc-builtins.so.12.8, which libnvrtc.so.12 opens by name when it compiles.
#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {

FAKE_API int getBuiltinHeader() { return 0; }

}  // namespace varve::gpu::fake
