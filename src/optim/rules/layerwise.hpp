// Loops of LAMB and Adafactor, whose steps depend on sums over a whole parameter. Included by one source per
// instruction set, as loops.hpp.
#pragma once

#include <optim/rules/layerwise_kernels.hpp>
#include <optim/rules/loops.hpp>

namespace danling::inline v0::optim::rules {
namespace {  // NOLINT(google-build-namespaces): see numbers.hpp

/// LAMB's step, once the norms are known; its moments are those of Adam. exp_avg, exp_avg_sq
struct LambStep {
  static constexpr int buffers = 2;
  template <class S>
  struct Constants {
    S sign, one_minus_beta1, beta2, one_minus_beta2, eps, first_scale, second_scale, decay, step_size;
  };
  /// The direction: that of Adam plus the decay.
  template <class V, class S>
  static V direction(const V& p, const V* state, const Constants<S>& c) {
    return state[0] * c.first_scale / (sqrt(state[1]) * c.second_scale + c.eps) + p * c.decay;
  }
  template <class V, class S>
  static void update(V& p, const V&, V* state, const Constants<S>& c) {
    p = p - direction(p, state, c) * c.step_size;
  }
};

/// The sum of the terms of a block: in lanes, then in pairs, in an order that does not depend on the vector width.
template <class T, class Term>
double block_sum(std::int64_t n, Term&& term) {
  constexpr std::int64_t lanes = 64;
  T sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (std::int64_t k = 0; k < lanes; ++k) {
      sums[k] += term(i + k);
    }
  }
  for (std::int64_t k = 0; i + k < n; ++k) {
    sums[k] += term(i + k);
  }
  for (std::int64_t half = lanes / 2; half > 0; half /= 2) {
    for (std::int64_t k = 0; k < half; ++k) {
      sums[k] += sums[k + half];
    }
  }
  return static_cast<double>(sums[0]);
}

template <class T>
double block_squares(const T* __restrict x, std::int64_t n) {
  return block_sum<T>(n, [x](std::int64_t i) { return x[i] * x[i]; });
}

/// Parts of parameters and gradients as T: in place, or converted block by block.
template <class T>
struct Reader {
  const void* param;
  const void* grad;
  float* master;
  Type param_type, grad_type;
  static constexpr Type native = sizeof(T) == 8 ? Type::float64 : Type::float32;
  alignas(64) T param_block[block];
  alignas(64) T grad_block[block];

  /// The parameter; for a narrow dtype its updated float32 copy.
  const T* params(std::int64_t at, std::int64_t n) {
    if (param_type == native) {
      return static_cast<const T*>(param) + at;
    }
    load(param, param_type, at, n, param_block);
    if constexpr (sizeof(T) == sizeof(float)) {
      if (master != nullptr) {
        alignas(64) std::uint16_t narrow[block];
        alignas(64) float back[block];
        store(master + at, n, narrow, param_type, 0);
        load(narrow, param_type, 0, n, back);
        follow_param(master + at, param_block, back, n);
        return master + at;
      }
    }
    return param_block;
  }

  const T* grads(std::int64_t at, std::int64_t n) {
    const T* out = static_cast<const T*>(grad) + at;
    if (grad_type != native) {
      load(grad, grad_type, at, n, grad_block);
      out = grad_block;
    }
    return out;
  }
};

/// Stores an updated block that is not in place.
template <class T>
void store_param(T* from, std::int64_t n, void* param, Type type, std::int64_t at, std::uint32_t rounding,
                 std::int64_t first) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (type != Type::float32) {
      store(from, n, param, type, at, rounding, first);
    }
  }
}

template <class T>
void lamb_moments(const Span& span, double* squares) {
  using Constants = LambStep::Constants<T>;
  T values[sizeof(Constants) / sizeof(T)];
  for (std::size_t i = 0; i < sizeof(values) / sizeof(T); ++i) {
    values[i] = static_cast<T>(span.constants[i]);
  }
  Constants c;
  __builtin_memcpy(&c, values, sizeof(c));
  Reader<T> reader{span.param, span.grad, span.master, span.param_type, span.grad_type, {}, {}};
  alignas(64) T directions[block];
  alignas(64) T blocks[2][block];
  for (std::int64_t at = 0; at < span.count; at += block) {
    const std::int64_t n = span.count - at < block ? span.count - at : block;
    const T* __restrict p = reader.params(at, n);
    const T* __restrict g = reader.grads(at, n);
    T* rows[2] = {};
    for (int b = 0; b < 2; ++b) {
      rows[b] = static_cast<T*>(span.state[b]) + at;
      if (span.state_type != Reader<T>::native) {
        load(span.state[b], span.state_type, at, n, blocks[b]);
        rows[b] = blocks[b];
      }
    }
    T* __restrict first = rows[0];
    T* __restrict second = rows[1];
    for (std::int64_t i = 0; i < n; ++i) {
      const T grad = g[i] * c.sign;
      T state[2] = {lerp(first[i], grad, c.one_minus_beta1), second[i] * c.beta2 + grad * grad * c.one_minus_beta2};
      first[i] = state[0];
      second[i] = state[1];
      directions[i] = LambStep::direction(p[i], state, c);
    }
    if constexpr (sizeof(T) == sizeof(float)) {
      if (span.state_type != Reader<T>::native) {
        store(first, n, span.state[0], span.state_type, at);
        store(second, n, span.state[1], span.state_type, at);
      }
    }
    squares[0] += block_squares(p, n);
    squares[1] += block_squares(directions, n);
  }
}

// ---- Adafactor ------------------------------------------------------------------------------------------------------

template <class T>
Reader<T> reader_of(const Matrix& m) {
  return {m.param, m.grad, m.master, m.param_type, m.grad_type, {}, {}};
}

/// Calls `visit(row, column, begin, n)` for each block of each row.
template <class Visit>
void each_block(const Matrix& m, Visit&& visit) {
  for (std::int64_t row = 0; row < m.rows; ++row) {
    for (std::int64_t column = 0; column < m.columns; column += block) {
      const std::int64_t left = m.columns - column;
      visit(row, column, row * m.columns + column, left < block ? left : block);
    }
  }
}

template <class T>
void adafactor_sums(const Matrix& m, double* row_sums, T* column_sums, double* param_squares) {
  Reader<T> reader = reader_of<T>(m);
  each_block(m, [&](std::int64_t row, std::int64_t column, std::int64_t begin, std::int64_t n) {
    *param_squares += block_squares(reader.params(begin, n), n);
    const T* __restrict g = reader.grads(begin, n);
    row_sums[row] += block_squares(g, n);
    T* __restrict sums = column_sums + column;
    for (std::int64_t i = 0; i < n; ++i) {
      sums[i] += g[i] * g[i];
    }
  });
}

/// The factor of a gradient: row * column, at most `most`. NaN propagates.
template <class T>
T factor_of(T row, T column, T most) {
  const T product = row * column;
  return product > most ? most : product;
}

template <class T>
double adafactor_squares(const Matrix& m, const T* rows, const T* columns, double most) {
  Reader<T> reader = reader_of<T>(m);
  const auto cap = static_cast<T>(most);
  double sum = 0;
  each_block(m, [&](std::int64_t row, std::int64_t column, std::int64_t begin, std::int64_t n) {
    const T* __restrict g = reader.grads(begin, n);
    const T* __restrict factors = columns + column;
    const T factor = rows[row];
    sum += block_sum<T>(n, [=](std::int64_t i) {
      const T update = g[i] * factor_of(factor, factors[i], cap);
      return update * update;
    });
  });
  return sum;
}

template <class T>
void adafactor_step(const Matrix& m, const T* rows, const T* columns, double most, double keep, double step) {
  Reader<T> reader = reader_of<T>(m);
  const auto cap = static_cast<T>(most);
  const auto scale = static_cast<T>(keep);
  const auto size = static_cast<T>(step);
  each_block(m, [&](std::int64_t row, std::int64_t column, std::int64_t begin, std::int64_t n) {
    const T* __restrict g = reader.grads(begin, n);
    const T* __restrict factors = columns + column;
    const T factor = rows[row];
    T* __restrict p = const_cast<T*>(reader.params(begin, n));
    for (std::int64_t i = 0; i < n; ++i) {
      p[i] = p[i] * scale - g[i] * factor_of(factor, factors[i], cap) * size;
    }
    store_param(p, n, m.param, m.param_type, begin, m.rounding, m.first);
  });
}

template <class T>
constexpr LayerwiseKernels<T> make_layerwise() {
  return {lamb_moments<T>, run<LambStep, T>, adafactor_sums<T>, adafactor_squares<T>, adafactor_step<T>};
}

}  // namespace
}  // namespace danling::inline v0::optim::rules
