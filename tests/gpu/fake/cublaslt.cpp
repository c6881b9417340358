// libcublasLt.so.12
#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {

FAKE_API int cublasLtCreate(void** handle) {
  if (const int code = enter("cublasLtCreate")) return code;
  *handle = new int(0);
  return 0;
}

FAKE_API int cublasLtDestroy(void* handle) {
  if (const int code = enter("cublasLtDestroy")) return code;
  delete static_cast<int*>(handle);
  return 0;
}

FAKE_API std::size_t cublasLtGetVersion() {
  enter("cublasLtGetVersion");
  return 120804;
}

}  // namespace varve::gpu::fake
