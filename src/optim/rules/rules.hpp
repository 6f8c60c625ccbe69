// Update rules of elementwise optimizers, each written once for numbers in vectorized loops and for lists of tensors on
// any device. `V` is a value (a number or a list), `S` a constant of the update. `state` holds the rule's buffers.
// Formulas and rounding are those of torch.optim.
#pragma once

#include <optim/rules/numbers.hpp>

namespace danling::inline v0::optim::rules {
namespace {  // NOLINT(google-build-namespaces): see numbers.hpp

// Constants: `sign` multiplies the gradient (1, or -1 to maximize, divided by the divisor); `decay` times the parameter
// is added to the gradient; `keep` multiplies the parameter (decoupled weight decay).

struct Average {  // not an optimizer: moves the parameter towards the gradient
  static constexpr int buffers = 0;
  template <class S>
  struct Constants {
    S weight;
  };
  template <class V, class S>
  static void update(V& p, const V& g, V*, const Constants<S>& c) {
    p = lerp(p, g, c.weight);
  }
};

struct PlainSgd {
  static constexpr int buffers = 0;
  template <class S>
  struct Constants {
    S sign, decay, lr;
  };
  template <class V, class S>
  static void update(V& p, const V& g, V*, const Constants<S>& c) {
    p = p - effective(g, p, c.sign, c.decay) * c.lr;
  }
};

struct MomentumSgd {  // momentum_buffer
  static constexpr int buffers = 1;
  /// `gradient` is 1 in the first update, which is not dampened; the momentum is then zero.
  template <class S>
  struct Constants {
    S sign, decay, lr, momentum, gradient;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    state[0] = state[0] * c.momentum + effective(grad, p, c.sign, c.decay) * c.gradient;
    p = p - state[0] * c.lr;
  }
};

struct NesterovSgd {  // momentum_buffer
  static constexpr int buffers = 1;
  template <class S>
  struct Constants {
    S sign, decay, lr, momentum, gradient, nesterov;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    const V g = effective(grad, p, c.sign, c.decay);
    state[0] = state[0] * c.momentum + g * c.gradient;
    p = p - (g + state[0] * c.nesterov) * c.lr;
  }
};

struct Asgd {  // ax
  static constexpr int buffers = 1;
  template <class S>
  struct Constants {
    S sign, decay, keep, eta, mu;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    const V g = effective(grad, p, c.sign, c.decay);
    p = p * c.keep - g * c.eta;
    state[0] = lerp(state[0], p, c.mu);
  }
};

struct Rprop {  // prev, step_size
  static constexpr int buffers = 2;
  template <class S>
  struct Constants {
    S sign, minus, plus, least, most, zero, one;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    const V g = grad * c.sign;
    const V turn = g * state[0];
    state[1] = clamp(state[1] * by_sign(turn, c.plus, c.minus, c.one), c.least, c.most);
    state[0] = g * by_sign(turn, c.one, c.zero, c.one);  // after a sign change the next step is not compared
    p = p - sign(state[0]) * state[1];
  }
};

struct Lion {  // exp_avg
  static constexpr int buffers = 1;
  template <class S>
  struct Constants {
    S sign, keep, lr, one_minus_beta1, one_minus_beta2;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    const V g = grad * c.sign;
    p = p * c.keep - sign(lerp(state[0], g, c.one_minus_beta1)) * c.lr;
    state[0] = lerp(state[0], g, c.one_minus_beta2);
  }
};

struct Adadelta {  // square_avg, acc_delta
  static constexpr int buffers = 2;
  template <class S>
  struct Constants {
    S sign, decay, lr, rho, one_minus_rho, eps;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    const V g = effective(grad, p, c.sign, c.decay);
    state[0] = state[0] * c.rho + g * g * c.one_minus_rho;
    const V delta = sqrt(state[1] + c.eps) / sqrt(state[0] + c.eps) * g;
    state[1] = state[1] * c.rho + delta * delta * c.one_minus_rho;
    p = p - delta * c.lr;
  }
};

struct Adagrad {  // sum
  static constexpr int buffers = 1;
  template <class S>
  struct Constants {
    S sign, decay, lr, eps;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    const V g = effective(grad, p, c.sign, c.decay);
    state[0] = state[0] + g * g;
    p = p - g * c.lr / (sqrt(state[0]) + c.eps);
  }
};

/// square_avg, with momentum momentum_buffer, centered grad_avg.
template <bool momentum, bool centered>
struct RmsProp {
  static constexpr int buffers = 1 + (momentum ? 1 : 0) + (centered ? 1 : 0);
  template <class S>
  struct Constants {
    S sign, decay, lr, alpha, one_minus_alpha, eps, momentum_factor;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    const V g = effective(grad, p, c.sign, c.decay);
    state[0] = state[0] * c.alpha + g * g * c.one_minus_alpha;
    V square = state[0];
    if constexpr (centered) {
      V& mean = state[buffers - 1];
      mean = lerp(mean, g, c.one_minus_alpha);
      square = square - mean * mean;
    }
    const V direction = g / (sqrt(square) + c.eps);
    if constexpr (momentum) {
      state[1] = state[1] * c.momentum_factor + direction;
      p = p - state[1] * c.lr;
    } else {
      p = p - direction * c.lr;
    }
  }
};

/// exp_avg, exp_avg_sq, with amsgrad max_exp_avg_sq.
template <bool amsgrad>
struct Adam {
  static constexpr int buffers = amsgrad ? 3 : 2;
  template <class S>
  struct Constants {
    S sign, decay, keep, one_minus_beta1, beta2, one_minus_beta2, eps, step_size, second_scale;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    const V g = effective(grad, p, c.sign, c.decay);
    state[0] = lerp(state[0], g, c.one_minus_beta1);
    state[1] = state[1] * c.beta2 + g * g * c.one_minus_beta2;
    V second = state[1];
    if constexpr (amsgrad) {
      state[2] = maximum(state[2], second);
      second = state[2];
    }
    p = p * c.keep - state[0] * c.step_size / (sqrt(second) / c.second_scale + c.eps);
  }
};

struct Adamax {  // exp_avg, exp_inf
  static constexpr int buffers = 2;
  template <class S>
  struct Constants {
    S sign, decay, one_minus_beta1, beta2, eps, step_size;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    const V g = effective(grad, p, c.sign, c.decay);
    state[0] = lerp(state[0], g, c.one_minus_beta1);
    state[1] = maximum(state[1] * c.beta2, abs(g) + c.eps);
    p = p - state[0] * c.step_size / state[1];
  }
};

struct NAdam {  // exp_avg, exp_avg_sq
  static constexpr int buffers = 2;
  template <class S>
  struct Constants {
    S sign, decay, keep, one_minus_beta1, beta2, one_minus_beta2, eps, bias2, gradient_step, moment_step;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    const V g = effective(grad, p, c.sign, c.decay);
    state[0] = lerp(state[0], g, c.one_minus_beta1);
    state[1] = state[1] * c.beta2 + g * g * c.one_minus_beta2;
    const V denominator = sqrt(state[1] / c.bias2) + c.eps;
    p = p * c.keep - g * c.gradient_step / denominator;
    p = p - state[0] * c.moment_step / denominator;
  }
};

struct RAdam {  // exp_avg, exp_avg_sq
  static constexpr int buffers = 2;
  /// `rectified` is 0 while the variance is intractable; the step is then not adaptive.
  template <class S>
  struct Constants {
    S sign, decay, keep, one_minus_beta1, beta2, one_minus_beta2, eps, step_size, rectified, adaptive;
  };
  template <class V, class S>
  static void update(V& p, const V& grad, V* state, const Constants<S>& c) {
    const V g = effective(grad, p, c.sign, c.decay);
    state[0] = lerp(state[0], g, c.one_minus_beta1);
    state[1] = state[1] * c.beta2 + g * g * c.one_minus_beta2;
    const V step = state[0] * c.step_size;
    p = p * c.keep - select(c.rectified, step * c.adaptive / (sqrt(state[1]) + c.eps), step);
  }
};

}  // namespace
}  // namespace danling::inline v0::optim::rules
