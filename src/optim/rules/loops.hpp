// Loops of the update rules over memory. Included by one source per instruction set, which names the table.
#pragma once

#include <optim/rules/kernels.hpp>
#include <optim/rules/rules.hpp>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace danling::inline v0::optim::rules {
namespace {  // NOLINT(google-build-namespaces): see numbers.hpp

constexpr std::int64_t block = 512;  // its state rows stay in the L1 cache

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

// ---- bfloat16 and float16 -------------------------------------------------------------------------------------------

inline float from_bfloat16(std::uint16_t x) { return bits_as<float>(static_cast<std::uint32_t>(x) << 16); }

/// Rounds to nearest, ties to even. The result is in the upper half; the lower half is arbitrary.
inline std::uint32_t rounded_to_bfloat16(float x) {
  const auto bits = bits_as<std::uint32_t>(x);
  return x != x ? 0x7FC00000U : bits + 0x7FFFU + ((bits >> 16) & 1U);
}
inline std::uint16_t to_bfloat16(float x) { return static_cast<std::uint16_t>(rounded_to_bfloat16(x) >> 16); }

/// Rounds up or down with a probability equal to the distance. `random`: 32 bits.
inline std::uint16_t to_bfloat16(float x, std::uint32_t random) {
  const auto bits = bits_as<std::uint32_t>(x);
  const bool special = (bits & 0x7F800000U) == 0x7F800000U;  // rounding must neither change nor create infinity
  return special ? to_bfloat16(x) : static_cast<std::uint16_t>((bits + (random & 0xFFFFU)) >> 16);
}

/// A hash of the element's index and the key (the finalizer of MurmurHash3).
inline std::uint32_t random_bits(std::uint32_t index, std::uint32_t key) {
  std::uint32_t x = index * 0x9E3779B9U ^ key;
  x ^= x >> 16;
  x *= 0x85EBCA6BU;
  x ^= x >> 13;
  x *= 0xC2B2AE35U;
  return x ^ (x >> 16);
}

#ifdef __F16C__
inline float from_float16(std::uint16_t x) { return _cvtsh_ss(x); }
inline std::uint16_t to_float16(float x) { return static_cast<std::uint16_t>(_cvtss_sh(x, 0)); }
#else
inline float from_float16(std::uint16_t x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x & 0x8000U) << 16;
  const std::uint32_t rest = static_cast<std::uint32_t>(x & 0x7FFFU) << 13;
  // Scaled by 2^112, the difference of the exponent biases, which also normalizes subnormal numbers.
  const std::uint32_t finite = bits_as<std::uint32_t>(bits_as<float>(rest) * 0x1p112F);
  const bool special = (x & 0x7C00U) == 0x7C00U;
  const std::uint32_t quiet = (x & 0x3FFU) != 0 ? 0x400000U : 0U;
  return bits_as<float>(sign | (special ? rest | 0x7F800000U | quiet : finite));
}

inline std::uint16_t to_float16(float x) {
  const auto bits = bits_as<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t out;
  if (magnitude > 0x7F800000U) {
    out = 0x7E00U | ((magnitude >> 13) & 0x3FFU);
  } else if (magnitude >= 0x477FF000U) {
    out = 0x7C00U;  // rounds to infinity
  } else if (magnitude < 0x38800000U) {
    // Subnormal: the addition rounds to a multiple of 2^-24, the unit in the last place of 0.5.
    out = bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5F) - 0x3F000000U;
  } else {
    out = (magnitude - 0x38000000U + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | out);
}
#endif

template <class T>
void load(const void* from, Type type, std::int64_t offset, std::int64_t n, T* __restrict to) {
  const auto convert = [&](const auto* values, auto&& get) {
    values += offset;
    for (std::int64_t i = 0; i < n; ++i) {
      to[i] = static_cast<T>(get(values[i]));
    }
  };
  const auto same = [](auto x) { return x; };
  switch (type) {
    case Type::float32:
      return convert(static_cast<const float*>(from), same);
    case Type::float64:
      return convert(static_cast<const double*>(from), same);
    case Type::bfloat16:
      return convert(static_cast<const std::uint16_t*>(from), from_bfloat16);
    case Type::float16: {
      const auto* values = static_cast<const std::uint16_t*>(from) + offset;
      std::int64_t i = 0;
#ifdef __F16C__
      if constexpr (sizeof(T) == sizeof(float)) {
        for (; i + 8 <= n; i += 8) {
          _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values + i))));
        }
      }
#endif
      for (; i < n; ++i) {
        to[i] = static_cast<T>(from_float16(values[i]));
      }
    }
  }
}

inline void store(const float* __restrict from, std::int64_t n, void* to, Type type, std::int64_t offset,
                  std::uint32_t rounding = 0, std::int64_t first = 0) {
  auto* values = static_cast<std::uint16_t*>(to) + offset;
  if (type == Type::float32) {
    __builtin_memcpy(static_cast<float*>(to) + offset, from, static_cast<std::size_t>(n) * sizeof(float));
  } else if (type == Type::bfloat16 && rounding != 0) {
    const auto index = static_cast<std::uint32_t>(first + offset);
    for (std::int64_t i = 0; i < n; ++i) {
      values[i] = to_bfloat16(from[i], random_bits(index + static_cast<std::uint32_t>(i), rounding));
    }
  } else if (type == Type::bfloat16) {
    for (std::int64_t i = 0; i < n; ++i) {
      values[i] = to_bfloat16(from[i]);
    }
  } else {
    std::int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(values + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
    }
#endif
    for (; i < n; ++i) {
      values[i] = to_float16(from[i]);
    }
  }
}

// ---- one pass -------------------------------------------------------------------------------------------------------

/// Layout of `T`s in an element of memory, which holds `per_element` of them.
template <class T>
struct Plain {
  using Element = T;
  static constexpr int per_element = 1;
  static T get(Element from, int) { return from; }
  static Element put(const T* values) { return values[0]; }
};

/// Two bfloat16 in 32 bits. Vectors of words need no shuffles, which would take half the time of a pass.
struct Bfloat16Pair {
  using Element [[gnu::may_alias, gnu::aligned(2)]] = std::uint32_t;
  static constexpr int per_element = 2;
  static float get(std::uint32_t from, int half) { return bits_as<float>(half == 0 ? from << 16 : from & 0xFFFF0000U); }
  static std::uint32_t put(const float* values) {
    return rounded_to_bfloat16(values[0]) >> 16 | (rounded_to_bfloat16(values[1]) & 0xFFFF0000U);
  }
};

template <class Rule, class T, class Storage, class Constants>
void apply(std::int64_t n, typename Storage::Element* __restrict p, const typename Storage::Element* __restrict g,
           typename Storage::Element* __restrict first, typename Storage::Element* __restrict second,
           typename Storage::Element* __restrict third, const Constants& constants) {
  const Constants c = constants;
  constexpr int width = Storage::per_element;
  for (std::int64_t i = 0; i < n; ++i) {
    T params[width];
    T states[3][width] = {};
    for (int k = 0; k < width; ++k) {
      T state[3] = {};
      if constexpr (Rule::buffers > 0) state[0] = Storage::get(first[i], k);
      if constexpr (Rule::buffers > 1) state[1] = Storage::get(second[i], k);
      if constexpr (Rule::buffers > 2) state[2] = Storage::get(third[i], k);
      params[k] = Storage::get(p[i], k);
      Rule::update(params[k], T(Storage::get(g[i], k)), state, c);
      states[0][k] = state[0];
      states[1][k] = state[1];
      states[2][k] = state[2];
    }
    p[i] = Storage::put(params);
    if constexpr (Rule::buffers > 0) first[i] = Storage::put(states[0]);
    if constexpr (Rule::buffers > 1) second[i] = Storage::put(states[1]);
    if constexpr (Rule::buffers > 2) third[i] = Storage::put(states[2]);
  }
}

/// If the parameter changed since it was rounded from its float32 copy, it replaces the copy.
inline void follow_param(float* __restrict master, const float* __restrict param, const float* __restrict rounded,
                         std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    master[i] = rounded[i] == param[i] ? master[i] : param[i];
  }
}

/// The common case: no copies of blocks.
inline bool is_plain_bfloat16(const Span& span) {
  return span.param_type == Type::bfloat16 && span.grad_type == Type::bfloat16 && span.state_type == Type::bfloat16 &&
         span.master == nullptr && span.rounding == 0;
}

template <class Rule, class Constants>
void apply_bfloat16(const Span& span, const Constants& constants) {
  using Word = Bfloat16Pair::Element;
  const auto words = [](void* from) { return static_cast<Word*>(from); };
  apply<Rule, float, Bfloat16Pair>(span.count / 2, words(span.param), static_cast<const Word*>(span.grad),
                                   words(span.state[0]), words(span.state[1]), words(span.state[2]), constants);
  if (span.count % 2 != 0) {  // the last element as a separate pair
    constexpr int rows = 5;
    std::uint16_t pairs[rows][2] = {};
    void* const last[rows] = {span.param, const_cast<void*>(span.grad), span.state[0], span.state[1], span.state[2]};
    const auto element = [&](int row) { return static_cast<std::uint16_t*>(last[row]) + span.count - 1; };
    for (int row = 0; row < 2 + Rule::buffers; ++row) {
      pairs[row][0] = *element(row);
    }
    apply<Rule, float, Bfloat16Pair>(1, words(pairs[0]), words(pairs[1]), words(pairs[2]), words(pairs[3]),
                                     words(pairs[4]), constants);
    for (int row = 0; row < 2 + Rule::buffers; ++row) {
      if (row != 1) {
        *element(row) = pairs[row][0];
      }
    }
  }
}

template <class Rule, class T>
void run(const Span& span) {
  using Constants = typename Rule::template Constants<T>;
  constexpr Type native = sizeof(T) == 8 ? Type::float64 : Type::float32;
  union {
    T values[sizeof(Constants) / sizeof(T)];
    Constants constants;
  };
  for (std::size_t i = 0; i < sizeof(values) / sizeof(T); ++i) {
    values[i] = static_cast<T>(span.constants[i]);
  }
  if constexpr (sizeof(T) == sizeof(float)) {
    if (is_plain_bfloat16(span)) {
      apply_bfloat16<Rule>(span, constants);
      return;
    }
  }
  alignas(64) T param_block[block];
  alignas(64) T grad_block[block];
  alignas(64) T state_blocks[3][block];
  for (std::int64_t at = 0; at < span.count; at += block) {
    const std::int64_t n = span.count - at < block ? span.count - at : block;
    T* param = static_cast<T*>(span.param) + at;
    if (span.param_type != native) {
      load(span.param, span.param_type, at, n, param_block);
      param = param_block;
    }
    if constexpr (sizeof(T) == sizeof(float)) {
      if (span.master != nullptr) {
        alignas(64) std::uint16_t narrow[block];
        store(span.master + at, n, narrow, span.param_type, 0);
        load(narrow, span.param_type, 0, n, grad_block);
        param = span.master + at;
        follow_param(param, param_block, grad_block, n);
      }
    }
    const T* grad = static_cast<const T*>(span.grad) + at;
    if (span.grad_type != native) {
      load(span.grad, span.grad_type, at, n, grad_block);
      grad = grad_block;
    }
    T* state[3] = {state_blocks[0], state_blocks[1], state_blocks[2]};
    for (int b = 0; b < Rule::buffers; ++b) {
      if (span.state_type == native) {
        state[b] = static_cast<T*>(span.state[b]) + at;
      } else {
        load(span.state[b], span.state_type, at, n, state_blocks[b]);
      }
    }
    apply<Rule, T, Plain<T>>(n, param, grad, state[0], state[1], state[2], constants);
    if constexpr (sizeof(T) == sizeof(float)) {
      if (span.param_type != native) {
        store(param, n, span.param, span.param_type, at, span.rounding, span.first);
      }
      if (span.state_type != native) {
        for (int b = 0; b < Rule::buffers; ++b) {
          store(state_blocks[b], n, span.state[b], span.state_type, at);
        }
      }
    }
  }
}

template <class Rule>
void update(const Span& span) {
  span.param_type == Type::float64 ? run<Rule, double>(span) : run<Rule, float>(span);
}

inline double sum_squares(const void* values, Type type, std::int64_t count) {
  // Many partial sums: the same additions in the same order for every vector width.
  constexpr std::int64_t lanes = 32;
  double sums[lanes] = {};
  alignas(64) float row[block];
  const auto add = [&](const auto* x, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      for (std::int64_t k = 0; k < lanes; ++k) {
        const double value = x[i + k];
        sums[k] += value * value;
      }
    }
    for (std::int64_t k = 0; i + k < n; ++k) {
      const double value = x[i + k];
      sums[k] += value * value;
    }
  };
  if (type == Type::float32) {
    add(static_cast<const float*>(values), count);
  } else if (type == Type::float64) {
    add(static_cast<const double*>(values), count);
  } else {
    for (std::int64_t at = 0; at < count; at += block) {
      const std::int64_t n = count - at < block ? count - at : block;
      load(values, type, at, n, row);
      add(row, n);
    }
  }
  double sum = 0;
  for (const double lane : sums) {
    sum += lane;
  }
  return sum;
}

constexpr Kernels make_kernels(const char* name) {
  return {name,
          {update<Average>, update<PlainSgd>, update<MomentumSgd>, update<NesterovSgd>, update<Asgd>, update<Rprop>,
           update<Lion>, update<Adadelta>, update<Adagrad>, update<RmsProp<false, false>>, update<RmsProp<true, false>>,
           update<RmsProp<false, true>>, update<RmsProp<true, true>>, update<Adam<false>>, update<Adam<true>>,
           update<Adamax>, update<NAdam>, update<RAdam>},
          sum_squares};
}

}  // namespace
}  // namespace danling::inline v0::optim::rules
