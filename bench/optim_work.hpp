// The work of bench/optim.cpp: optimizers, parameters with gradients, and steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/optim/build.hpp>

namespace bench {

namespace optim = danling::optim;
using Shapes = std::vector<std::vector<std::int64_t>>;

struct Kind {
  std::string name;
  std::string python;
  std::string options;
  /// Tensors of a parameter's size that a step must read or write; 0: no share.
  double passes;
  /// True if LibTorch has a fused kernel; otherwise danling must be three times as fast as foreach.
  bool kernel;
};

const std::vector<Kind>& kinds();

struct Layout {
  std::string title;
  Shapes shapes;
  int calls;  ///< steps per turn
};

struct Place {
  at::ScalarType dtype;
  int threads;
  std::string dtype_name() const { return dtype == at::kFloat ? "float32" : "bfloat16"; }
};

/// Parameters with gradients, and their initial values.
struct Model {
  std::vector<at::Tensor> params, starts, grads;

  Model(const Shapes& shapes, at::ScalarType dtype);
  void refill();
  /// The mean movement of an element, times a million.
  double moved() const;
};

std::shared_ptr<optim::Optimizer> make_optimizer(const Kind& kind, const std::vector<at::Tensor>& params);

/// Steps a model; all steppers of a row must yield the same result.
struct Stepper {
  Model model;
  std::function<void()> step;

  double value();
  double time(int calls) const;
  /// The same for steps that change the gradients, which are restored in between, untimed.
  double time_renewed(int calls);
};

}  // namespace bench
