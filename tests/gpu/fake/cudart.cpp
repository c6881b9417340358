// libcudart.so.12
#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {

FAKE_API int cudaRuntimeGetVersion(int* version) {
  if (const int code = enter("cudaRuntimeGetVersion")) return code;
  *version = 12080;
  return 0;
}

}  // namespace varve::gpu::fake
