// libcublasLt.so.12
#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {

FAKE_LIFETIME(int, cublasLtCreate, cublasLtDestroy)

FAKE_API std::size_t cublasLtGetVersion() {
  enter("cublasLtGetVersion");
  return 120804;
}

}  // namespace varve::gpu::fake
