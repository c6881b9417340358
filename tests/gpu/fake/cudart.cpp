// libcudart.so.12
#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {

FAKE_VERSION(cudaRuntimeGetVersion, 12080)

}  // namespace varve::gpu::fake
