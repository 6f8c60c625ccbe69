// Interface of optimizers: parameter groups, update, zero_grad, and a state in the layout of torch.optim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/state/state.hpp>

namespace danling::inline v0::optim {

/// Divisor of the gradients and an overflow flag: for a loss scale, clipping, or a number of ranks.
struct GradScale {
  double divisor = 1.0;
  at::Tensor scale = {};      ///< one number; an additional divisor of the gradients
  at::Tensor found_inf = {};  ///< one number: nonzero if a gradient is not finite; the update is then skipped
};

/// Parameters that share a learning rate and the other options of their optimizer.
struct ParamGroup {
  /// Leaf tensors. Fixed once added to an optimizer: `step()` throws if they were replaced (LBFGS does not check).
  std::vector<at::Tensor> params = {};
  /// Empty, or one name per parameter: for messages, patterns and `param_names` in the state.
  std::vector<std::string> names = {};
  /// May be changed between updates, by a scheduler or manually.
  double lr = 0;
  /// Initial learning rate; a scheduler sets it.
  std::optional<double> initial_lr = std::nullopt;
  double weight_decay = 0;
};

/// Zeroes the gradients, computes the loss and its gradients, and returns the loss.
using Closure = std::function<at::Tensor()>;

class Optimizer;
namespace detail {
void step_on_device(Optimizer& optimizer, const GradScale& scale);
}

/// Updates parameters from their gradients. Derive from it to write an optimizer.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// Name of the optimizer in messages: "AdamW".
  virtual std::string_view name() const = 0;

  std::vector<ParamGroup>& param_groups() { return groups_; }
  const std::vector<ParamGroup>& param_groups() const { return groups_; }

  /// Updates every parameter that has a gradient, under no-grad. Divides gradients by `grad_divisor`, inside the
  /// kernels if those run; unless it is 1, the content of the gradients is unspecified afterwards. Does not wait for
  /// the device, except at a process's first update if LibTorch's fused kernel must first be compared with unfused
  /// operations (docs/optim/optimizers.md).
  /// @throws StateError for a sparse gradient, a gradient or state that does not fit its parameter, replaced
  ///         parameters, or a divisor that is not a finite positive number.
  void step(double grad_divisor = 1.0);

  /// The same with a scale and a flag that may be on a device. If the flag is not 0, changes no parameter, momentum or
  /// count; the content of the gradients is then unspecified. The library's optimizers do not wait for the device
  /// unless a parameter is on the host. An adapted torch optimizer, and an optimizer without `takes_device_scale()`,
  /// waits for both tensors.
  /// @throws StateError for a tensor of several elements, and as above.
  void step(const GradScale& scale);

  /// Updates for a loss that can be evaluated again: `closure` zeroes the gradients, computes the loss and its
  /// gradients, and returns the loss. LBFGS calls it several times, other optimizers once. Returns the loss of the
  /// first call.
  at::Tensor step(const Closure& closure);
  /// Returns whether an update evaluates the loss several times: then step(closure) is the only update.
  virtual bool requires_closure() const { return false; }

  /// The momentum of a group, which schedules may cycle: `momentum` or the first of `betas`. Empty if the optimizer has
  /// neither.
  virtual std::optional<double> momentum(std::size_t group) const;
  /// @throws StateError when momentum() is empty, ConfigError for a value out of range.
  virtual void set_momentum(std::size_t group, double value);

  /// Drops the gradients, or zeroes them if `set_to_none` is false (required if they are views of a communication
  /// bucket).
  void zero_grad(bool set_to_none = true);

  /// Number of calls of step() in this process, without those that skipped the update by a flag that the host read.
  std::int64_t num_calls() const { return num_calls_; }

  /// State in the layout of Python's torch.optim:
  /// {"state": {0: {...}}, "param_groups": [{"lr": ..., "params": [0, 1]}]}. Shares tensors with the optimizer.
  virtual State state_dict() const = 0;

  /// Copies a state: tensors are copied into new ones with the layout of their parameters. Options of the groups (lr,
  /// betas, ...) come from the state, as in Python, except implementation options (fused, foreach, capturable,
  /// differentiable). @throws StateError, naming the parameter and changing nothing, when the state does not match.
  virtual void load_state_dict(const State& state) = 0;

 protected:
  Optimizer() = default;

  /// Runs one update. `step()` calls it under no-grad with a valid divisor.
  virtual void update(double grad_divisor) = 0;

  /// update() with a scale or flag on a device, each of one element of any dtype. Called only if
  /// `takes_device_scale()`, which each step checks.
  virtual void update_on_device(const GradScale& scale);
  /// Returns whether update_on_device() is overridden. If false, step(GradScale) waits for the device, reads scale and
  /// flag, and calls update().
  virtual bool takes_device_scale() const { return false; }

  /// Runs one update of step(closure), under no-grad; the closure needs gradients. Override it together with
  /// requires_closure().
  virtual at::Tensor update_with_closure(const Closure& closure);

  /// Adds a group after checking its parameters. @throws ConfigError for an empty group, a non-leaf tensor, a parameter
  /// that is already in the optimizer, or a wrong number of names.
  void add_group(ParamGroup group);

  /// `'fc.weight'`, or `parameter 3` without names; for messages.
  std::string describe(std::size_t group, std::size_t index) const;

  std::vector<ParamGroup> groups_;

 private:
  friend void detail::step_on_device(Optimizer& optimizer, const GradScale& scale);

  std::int64_t num_calls_ = 0;
};

/// All defined gradients, in the order of the parameters.
std::vector<at::Tensor> gradients(const Optimizer& optimizer);

}  // namespace danling::inline v0::optim
