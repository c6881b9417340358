#pragma once
// Finding the few bytes that matter in JSON text, sixteen at a time where the processor can.
#include <bit>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace varve::notebooks {

// The first '"' or '\\' in [p, end), or `end`: where a run of plain characters inside a string stops.
inline const char* find_string_stop(const char* p, const char* end) {
#if defined(__SSE2__)
  const auto quote = _mm_set1_epi8('"');
  const auto backslash = _mm_set1_epi8('\\');
  for (; end - p >= 16; p += 16) {
    const auto bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const auto hits = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash));
    if (const auto mask = unsigned(_mm_movemask_epi8(hits)); mask != 0) return p + std::countr_zero(mask);
  }
#endif
  while (p != end && *p != '"' && *p != '\\') ++p;
  return p;
}

// The first quote or bracket in [p, end), or `end`: all that matters between the strings of a value that is passed
// over.
inline const char* find_structure(const char* p, const char* end) {
#if defined(__SSE2__)
  const auto quote = _mm_set1_epi8('"');
  const auto open = _mm_set1_epi8('{');
  const auto close = _mm_set1_epi8('}');
  const auto fold = _mm_set1_epi8(0x20);  // '[' | 0x20 = '{' and ']' | 0x20 = '}'
  for (; end - p >= 16; p += 16) {
    const auto bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const auto folded = _mm_or_si128(bytes, fold);
    const auto brackets = _mm_or_si128(_mm_cmpeq_epi8(folded, open), _mm_cmpeq_epi8(folded, close));
    const auto hits = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), brackets);
    if (const auto mask = unsigned(_mm_movemask_epi8(hits)); mask != 0) return p + std::countr_zero(mask);
  }
#endif
  while (p != end && *p != '"' && (*p | 0x20) != '{' && (*p | 0x20) != '}') ++p;
  return p;
}

inline bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace varve::notebooks
