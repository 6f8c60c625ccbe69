// Operations of update rules on plain numbers. `lists.hpp` has the same operations on lists of tensors.
#pragma once

#include <cstdint>

namespace danling::inline v0::optim::rules {
// Internal linkage: each translation unit compiles these functions for another instruction set, and the linker must not
// merge them.
namespace {  // NOLINT(google-build-namespaces)

inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }
inline float copysign(float x, float sign) { return __builtin_copysignf(x, sign); }
inline double copysign(double x, double sign) { return __builtin_copysign(x, sign); }
inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }

template <class T>
inline T maximum(T a, T b) {
  return a > b || a != a ? a : b;  // NaN stays NaN
}

/// -1, 0 or 1; 0 for NaN, as LibTorch's sign().
template <class T>
inline T sign(T x) {
  return __builtin_islessgreater(x, T(0)) ? copysign(T(1), x) : T(0);
}

/// torch.lerp: exact at both ends. One product, since all elements have the same `weight`.
template <class T>
inline T lerp(T start, T end, T weight) {
  const bool from_start = weight < T(0.5);
  return (from_start ? start : end) + (end - start) * (from_start ? weight : weight - 1);
}

template <class T>
inline T select(T condition, T yes, T no) {
  return condition != 0 ? yes : no;
}

/// Selects by the sign of `x`.
template <class T>
inline T by_sign(T x, T positive, T negative, T zero) {
  return x > 0 ? positive : x < 0 ? negative : zero;
}

template <class T>
inline T clamp(T x, T low, T high) {
  return x < low ? low : x > high ? high : x;
}

/// The gradient that a rule reads: negated to maximize, with weight decay added.
template <class T>
inline T effective(T grad, T param, T sign, T decay) {
  return decay != 0 ? grad * sign + param * decay : grad * sign;  // an infinite parameter times 0 would be NaN
}

}  // namespace
}  // namespace danling::inline v0::optim::rules
