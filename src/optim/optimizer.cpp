#include <danling/optim/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>

#include <optim/memory.hpp>

namespace danling::inline v0::optim {

namespace {

void check_divisor(const Optimizer& optimizer, double divisor) {
  if (!(divisor > 0) || !std::isfinite(divisor)) [[unlikely]] {
    fail<StateError>(concat(optimizer.name(), ".step"), "expected a finite grad_divisor above 0, got ", divisor);
  }
}

void check_one_element(const Optimizer& optimizer, const char* what, const at::Tensor& tensor) {
  if (tensor.defined() && tensor.numel() != 1) [[unlikely]] {
    fail<StateError>(concat(optimizer.name(), ".step"), "expected ", what, " of one element, got ", tensor.numel());
  }
}

}  // namespace

Optimizer::~Optimizer() = default;

void Optimizer::step(double grad_divisor) {
  check_divisor(*this, grad_divisor);
  const at::NoGradGuard no_grad;
  ++num_calls_;
  if (grad_divisor != 1.0) {
    detail::separate_gradients(groups_);
  }
  update(grad_divisor);
}

at::Tensor Optimizer::step(const Closure& closure) {
  if (!requires_closure()) {
    at::Tensor loss;
    {
      const at::AutoGradMode with_grad(true);
      loss = closure();
    }
    step();
    return loss;
  }
  const at::NoGradGuard no_grad;
  ++num_calls_;
  return update_with_closure(closure);
}

at::Tensor Optimizer::update_with_closure(const Closure&) {
  fail<StateError>(concat(name(), ".step"),
                   "expected an override of update_with_closure with requires_closure, got none");
}

void Optimizer::step(const GradScale& scale) {
  check_one_element(*this, "a scale", scale.scale);
  check_one_element(*this, "a found_inf", scale.found_inf);
  const auto on_host = [](const ParamGroup& group) {
    return std::any_of(group.params.begin(), group.params.end(), [](const auto& param) { return param.is_cpu(); });
  };
  const bool waits = !takes_device_scale() || std::any_of(groups_.begin(), groups_.end(), on_host);
  GradScale left{.divisor = scale.divisor};
  if (scale.found_inf.defined() && (waits || scale.found_inf.is_cpu())) {
    if (scale.found_inf.item().toDouble() != 0) {
      return;
    }
  } else {
    left.found_inf = scale.found_inf;
  }
  if (scale.scale.defined() && (waits || scale.scale.is_cpu())) {
    left.divisor *= scale.scale.item().toDouble();
  } else {
    left.scale = scale.scale;
  }
  if (left.scale.defined() || left.found_inf.defined()) {
    detail::step_on_device(*this, left);
  } else {
    step(left.divisor);
  }
}

void detail::step_on_device(Optimizer& optimizer, const GradScale& scale) {
  check_divisor(optimizer, scale.divisor);
  const at::NoGradGuard no_grad;
  ++optimizer.num_calls_;
  separate_gradients(optimizer.groups_);
  optimizer.update_on_device(scale);
}

void Optimizer::update_on_device(const GradScale&) {
  fail<StateError>(concat(name(), ".step"),
                   "expected an override of update_on_device with takes_device_scale, got none");
}

std::optional<double> Optimizer::momentum(std::size_t) const { return std::nullopt; }

void Optimizer::set_momentum(std::size_t, double value) {
  fail<StateError>(concat(name(), ".set_momentum"), "expected an optimizer with a momentum or betas, got ", value,
                   " for one that has neither");
}

void Optimizer::zero_grad(bool set_to_none) {
  if (set_to_none) {
    for (auto& group : groups_) {
      for (auto& param : group.params) {
        param.mutable_grad().reset();
      }
    }
    return;
  }
  const at::NoGradGuard no_grad;
  for (auto& group : groups_) {
    for (auto& param : group.params) {
      at::Tensor& grad = param.mutable_grad();
      if (!grad.defined()) {
        continue;
      }
      // Detaches a gradient with a history (create_graph). Views cannot be detached in place, and need not be.
      if (grad.requires_grad()) {
        grad = grad.detach();
      }
      grad.zero_();
    }
  }
}

void Optimizer::add_group(ParamGroup group) {
  const std::string where = concat(name(), ".add_param_group");
  check<ConfigError>(!group.params.empty(), where, "expected at least one parameter, got none");
  check<ConfigError>(group.names.empty() || group.names.size() == group.params.size(), where, "expected ",
                     group.params.size(), " names, one per parameter, got ", group.names.size());
  std::unordered_set<const c10::TensorImpl*> known;
  for (const auto& other : groups_) {
    for (const auto& param : other.params) {
      known.insert(param.unsafeGetTensorImpl());
    }
  }
  for (std::size_t i = 0; i < group.params.size(); ++i) {
    const at::Tensor& param = group.params[i];
    const auto fail_for = [&](std::string_view expected, std::string_view got) {
      const std::string what = group.names.empty() ? concat("parameter ", i) : quote(group.names[i]);
      fail<ConfigError>(where, "expected ", expected, ", got ", got, " for ", what);
    };
    if (!param.defined()) {
      fail_for("a tensor", "an undefined one");
    }
    if (!param.is_leaf()) {
      fail_for("a leaf tensor", "the result of an operation");
    }
    if (!known.insert(param.unsafeGetTensorImpl()).second) {
      fail_for("each parameter once", "one that the optimizer has already");
    }
  }
  groups_.push_back(std::move(group));
}

[[gnu::noinline]] std::string Optimizer::describe(std::size_t group, std::size_t index) const {
  const ParamGroup& found = groups_[group];
  if (index < found.names.size()) {
    return quote(found.names[index]);
  }
  std::size_t number = index;
  for (std::size_t g = 0; g < group; ++g) {
    number += groups_[g].params.size();
  }
  return concat("parameter ", number);
}

std::vector<at::Tensor> gradients(const Optimizer& optimizer) {
  std::vector<at::Tensor> out;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& param : group.params) {
      if (param.grad().defined()) {
        out.push_back(param.grad());
      }
    }
  }
  return out;
}

}  // namespace danling::inline v0::optim
