#pragma once
// Owners of libzstd's contexts.
#include <zstd.h>

#include <memory>
#include <new>

#include "core/base/free_with.h"

namespace varve::codec::internal {

using ZstdDecoder = std::unique_ptr<ZSTD_DCtx, FreeWith<ZSTD_freeDCtx>>;
using ZstdEncoder = std::unique_ptr<ZSTD_CCtx, FreeWith<ZSTD_freeCCtx>>;

inline ZstdDecoder make_zstd_decoder(int max_window_log) {
  ZstdDecoder decoder(ZSTD_createDCtx());
  if (!decoder) throw std::bad_alloc();
  ZSTD_DCtx_setParameter(decoder.get(), ZSTD_d_windowLogMax, max_window_log);
  return decoder;
}

inline ZstdEncoder make_zstd_encoder() {
  ZstdEncoder encoder(ZSTD_createCCtx());
  if (!encoder) throw std::bad_alloc();
  return encoder;
}

}  // namespace varve::codec::internal
