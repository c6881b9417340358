#pragma once
#include "core/base/bytes.h"

namespace varve::codec {

enum class Container { kGzip, kZstd, kTar, kUnknown };

inline constexpr std::size_t kSniffBytes = 512;
// What the first bytes (up to kSniffBytes; fewer only if the blob is shorter) say; an empty blob and all zeros count as
// tar.
Container sniff(ByteView first_bytes);

// True if the last bytes of a gzip blob are an eStargz footer (stargz docs/estargz.md: 51, 47 or 46 bytes).
bool has_estargz_footer(ByteView last_bytes);
inline constexpr std::size_t kEstargzFooterBytes = 51;
// True if the last bytes of a zstd blob are a zstd:chunked footer of either dialect (72 or 48 bytes with the frame
// header).
bool has_zstd_chunked_footer(ByteView last_bytes);
inline constexpr std::size_t kZstdChunkedFooterBytes = 72;

}  // namespace varve::codec
