// The interface of optimizers: parameter groups, one update, gradients to zero, and a state in the layout of
// torch.optim.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/state/state.hpp>

namespace danling::inline v0::optim {

/// How much too large gradients are, and whether they may be used: a loss scale, a factor of clipping, a number of
/// ranks.
struct GradScale {
  double divisor = 1.0;
  at::Tensor scale = {};      ///< one number, by which gradients are divided too
  at::Tensor found_inf = {};  ///< one number: any but 0 means that a gradient is not finite, so that none is used
};

/// Parameters that share a learning rate and the other options of their optimizer.
struct ParamGroup {
  /// Leaf tensors. Fixed once the optimizer has them; `step()` refuses a group whose tensors were exchanged.
  std::vector<at::Tensor> params = {};
  /// Empty, or one name per parameter: for messages, patterns and `param_names` in the state.
  std::vector<std::string> names = {};
  /// May be changed between updates, by a scheduler or by hand.
  double lr = 0;
  /// The learning rate that a scheduler starts from. Set by the scheduler.
  std::optional<double> initial_lr = std::nullopt;
  double weight_decay = 0;
};

class Optimizer;
namespace detail {
void step_on_device(Optimizer& optimizer, const GradScale& scale);
}

/// Updates parameters from their gradients. Derive to write an optimizer of your own.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// What the optimizer is called in messages: "AdamW".
  virtual std::string_view name() const = 0;

  std::vector<ParamGroup>& param_groups() { return groups_; }
  const std::vector<ParamGroup>& param_groups() const { return groups_; }

  /// One update of every parameter that has a gradient, under no-grad. Gradients are divided by `grad_divisor` first,
  /// inside the fused kernels where those run, and hold the divided values afterwards; 1 costs nothing. No device wait,
  /// but for the first update in a process where LibTorch's fused kernel has yet to be compared with unfused operations
  /// (docs/guide.md).
  /// @throws StateError for a sparse gradient, a gradient or state that does not fit its parameter, exchanged
  ///         parameters, or a divisor that is not a finite positive number.
  void step(double grad_divisor = 1.0);

  /// The same by a scale and a flag that may lie on a device. Where the flag is not 0, nothing is updated: no
  /// parameter, no momentum, no count; what the gradients hold is then not specified. SGD, Adam and AdamW do not wait
  /// for a device, but where a parameter lies on the host, or before a momentum with dampening exists; others wait for
  /// both tensors.
  /// @throws StateError for a tensor of several elements, and as above.
  void step(const GradScale& scale);

  /// Drops the gradients, or fills them with zeros when `set_to_none` is false (gradients that are views of a
  /// communication bucket must not be dropped).
  void zero_grad(bool set_to_none = true);

  /// The layout of Python's `torch.optim`: {"state": {0: {...}}, "param_groups": [{"lr": ..., "params": [0, 1]}]}.
  /// Shares tensors with the optimizer.
  virtual State state_dict() const = 0;

  /// Takes over a state by value: tensors are copied into new ones laid out like their parameters. Options of the
  /// groups (lr, betas, ...) come from the state, as in Python; how to compute (fused, foreach, capturable,
  /// differentiable) does not. @throws StateError, naming the parameter, and changes nothing when it does not fit.
  virtual void load_state_dict(const State& state) = 0;

 protected:
  Optimizer() = default;

  /// One update; called by `step()` under no-grad with a checked divisor.
  virtual void update(double grad_divisor) = 0;

  /// The same with a scale or flag on a device, both of one float32 or float64 element; called only where
  /// `takes_device_scale()`, which is asked at each step.
  virtual void update_on_device(const GradScale& scale);
  virtual bool takes_device_scale() const { return false; }

  /// Adds a group after checking its parameters. @throws ConfigError for an empty group, a tensor that is no leaf, a
  /// parameter that is in the optimizer already, or a wrong number of names.
  void add_group(ParamGroup group);

  /// `'fc.weight'`, or `parameter 3` where there are no names. For messages.
  std::string describe(std::size_t group, std::size_t index) const;

  std::vector<ParamGroup> groups_;

 private:
  friend void detail::step_on_device(Optimizer& optimizer, const GradScale& scale);
};

/// Every parameter's gradient that is defined, in order.
std::vector<at::Tensor> gradients(const Optimizer& optimizer);

}  // namespace danling::inline v0::optim
