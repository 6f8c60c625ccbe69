// Bit masks of byte properties, for many bytes at once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace danling::inline v0::formats {

#if defined(__SSE2__)

/// Returns a mask of the bytes, among 16, that a JSON string must escape or that are not ASCII.
inline std::uint32_t special_in_string(const char* bytes) {
  const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  const __m128i control = _mm_cmplt_epi8(all, _mm_set1_epi8(0x20));  // signed: also those above 0x7f
  const __m128i quote = _mm_cmpeq_epi8(all, _mm_set1_epi8('"'));
  const __m128i backslash = _mm_cmpeq_epi8(all, _mm_set1_epi8('\\'));
  return static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_or_si128(control, _mm_or_si128(quote, backslash))));
}

/// Returns a mask of the bytes, among 64, that are `a`, `b`, LF or CR. Sets `other` if one is NUL or not ASCII.
inline std::uint64_t marks_of(const char* bytes, char a, char b, bool& other) {
  const __m128i as = _mm_set1_epi8(a);
  const __m128i bs = _mm_set1_epi8(b);
  std::uint64_t out = 0;
  __m128i odd = _mm_setzero_si128();
  for (int part = 0; part < 4; ++part) {
    const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + std::ptrdiff_t{16} * part));
    const __m128i ends =
        _mm_or_si128(_mm_cmpeq_epi8(all, _mm_set1_epi8('\n')), _mm_cmpeq_epi8(all, _mm_set1_epi8('\r')));
    const __m128i is = _mm_or_si128(ends, _mm_or_si128(_mm_cmpeq_epi8(all, as), _mm_cmpeq_epi8(all, bs)));
    odd = _mm_or_si128(odd, _mm_cmplt_epi8(all, _mm_set1_epi8(1)));  // signed
    out |= std::uint64_t{static_cast<std::uint32_t>(_mm_movemask_epi8(is))} << (16 * part);
  }
  other = other || _mm_movemask_epi8(odd) != 0;
  return out;
}

/// Returns true if a character occurs an odd number of times.
inline bool is_odd(const char* begin, const char* end, char c) {
  const __m128i cs = _mm_set1_epi8(c);
  __m128i odd = _mm_setzero_si128();
  for (; end - begin >= 16; begin += 16) {
    odd = _mm_xor_si128(odd, _mm_cmpeq_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(begin)), cs));
  }
  int count = std::popcount(static_cast<std::uint32_t>(_mm_movemask_epi8(odd)));
  for (; begin < end; ++begin) {
    count += *begin == c ? 1 : 0;
  }
  return count % 2 == 1;
}

#else

inline bool is_odd(const char* begin, const char* end, char c) {
  bool odd = false;
  for (; begin < end; ++begin) {
    odd = odd != (*begin == c);
  }
  return odd;
}

inline std::uint32_t special_in_string(const char* bytes) {
  std::uint32_t out = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    const bool is = static_cast<signed char>(bytes[i]) < 0x20 || bytes[i] == '"' || bytes[i] == '\\';
    out |= std::uint32_t{is} << i;
  }
  return out;
}

inline std::uint64_t marks_of(const char* bytes, char a, char b, bool& other) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const char c = bytes[i];
    out |= std::uint64_t{c == a || c == b || c == '\n' || c == '\r'} << i;
    other = other || static_cast<signed char>(c) < 1;
  }
  return out;
}

#endif

}  // namespace danling::inline v0::formats
