#include <optim/plan.hpp>

#include <algorithm>

#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>
#include <optim/memory.hpp>
#include <optim/saved_state.hpp>

namespace danling::inline v0::optim::detail {

std::optional<at::Tensor> Bucket::collect(double grad_divisor) {
  for (const auto& param : params) {
    grads.push_back(param.grad());
  }
  if (grad_divisor == 1.0) {
    return std::nullopt;
  }
  if (params[0].scalar_type() == at::kDouble && static_cast<double>(static_cast<float>(grad_divisor)) != grad_divisor) {
    at::_foreach_div_(grads, grad_divisor);
    return std::nullopt;
  }
  if (!grad_scale.defined()) {
    grad_scale = at::empty({}, at::TensorOptions().device(params[0].device()).dtype(at::kFloat));
  }
  if (grad_scale.is_cpu()) {
    *grad_scale.mutable_data_ptr<float>() = static_cast<float>(grad_divisor);
  } else {
    grad_scale.fill_(grad_divisor);
  }
  return grad_scale;
}

std::optional<at::Tensor> Bucket::collect(const DeviceScale& scale) {
  for (const auto& param : params) {
    grads.push_back(param.grad());
  }
  if (!scale.divisor.defined()) {
    return std::nullopt;
  }
  if (params[0].scalar_type() == at::kDouble) {
    at::_foreach_div_(grads, scale.divisor);
    return std::nullopt;
  }
  return scale.divisor.to(at::kFloat);
}

DeviceScale::DeviceScale(const GradScale& scale, at::Device device) {
  if (scale.scale.defined()) {
    divisor = scale.scale.detach().reshape({}).to(device, at::kDouble, /*non_blocking=*/true).mul(scale.divisor);
  } else if (scale.divisor != 1.0) {
    divisor = at::full({}, scale.divisor, at::TensorOptions().device(device).dtype(at::kDouble));
  }
  if (scale.found_inf.defined()) {
    const at::Tensor flag = scale.found_inf.detach().reshape({});
    found_inf = flag.to(device, flag.scalar_type(), /*non_blocking=*/true).ne(0).to(at::kFloat);
  }
}

at::Tensor DeviceScale::count_increment() const { return found_inf.defined() ? found_inf.neg().add_(1) : at::Tensor(); }

void restore_where(const at::Tensor& found_inf, const at::Tensor& before, const at::Tensor& tensor) {
  at::where_out(const_cast<at::Tensor&>(tensor), found_inf.ne(0), before, tensor);
}

void Plan::rebuild_lists() {
  if (next == routes) {
    return;
  }
  buckets.clear();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (next[i] == Route::skip || next[i] == Route::plain) {
      continue;
    }
    const Slot& slot = slots[i];
    Bucket* bucket = nullptr;
    for (auto& candidate : buckets) {
      if (candidate.route == next[i] && candidate.params[0].device() == slot.param.device() &&
          candidate.params[0].scalar_type() == slot.param.scalar_type()) {
        bucket = &candidate;
      }
    }
    if (bucket == nullptr) {
      bucket = &buckets.emplace_back();
      bucket->route = next[i];
    }
    bucket->members.push_back(i);
    bucket->params.push_back(slot.param);
    for (std::size_t b = 0; b < slot.buffers.size(); ++b) {
      if (slot.buffers[b].defined()) {
        bucket->buffers[b].push_back(slot.buffers[b]);
      }
    }
    if (slot.step.defined()) {
      bucket->steps.push_back(slot.step);
    }
  }
  for (auto& bucket : buckets) {
    bucket.grads.reserve(bucket.params.size());
  }
  routes = next;
}

std::vector<Slot> make_slots(const std::vector<at::Tensor>& params) {
  std::vector<Slot> slots;
  for (const auto& param : params) {
    slots.push_back(Slot{.param = param, .buffers = {}, .step = {}});
  }
  for (const std::size_t i : find_overlapping(params)) {
    slots[i].overlaps = true;
  }
  return slots;
}

void check_same(std::string_view optimizer, const Plan& plan, const std::vector<at::Tensor>& params,
                std::size_t group) {
  bool same = params.size() == plan.slots.size();
  for (std::size_t i = 0; same && i < params.size(); ++i) {
    same = params[i].is_same(plan.slots[i].param);
  }
  if (!same) [[unlikely]] {
    fail<StateError>(concat(optimizer, ".step"), "expected the parameters of group ", group,
                     " as they were added, got others; use add_param_group, or build a new optimizer");
  }
}

void throw_gradient(std::string_view optimizer, const at::Tensor& param, const at::Tensor& grad,
                    const std::string& what) {
  const std::string where = concat(optimizer, ".step");
  if (grad.layout() != c10::kStrided) {
    fail<StateError>(where, "expected a dense gradient of ", what,
                     ", got a sparse one; make it dense, for instance with Embedding's sparse(false)");
  }
  if (grad.sizes() != param.sizes()) {
    fail<StateError>(where, "expected the gradient of ", what, " with shape ", shape_text(param), ", got ",
                     shape_text(grad));
  }
  fail<StateError>(where, "expected the gradient of ", what, " on ", param.device().str(), ", got ",
                   grad.device().str());
}

void throw_buffer(std::string_view optimizer, const at::Tensor& param, const at::Tensor& buffer, const char* key,
                  const std::string& what) {
  fail<StateError>(concat(optimizer, ".step"), "expected ", key, " of ", what, " as ",
                   c10::toString(param.scalar_type()), " ", shape_text(param), " on ", param.device().str(), ", got ",
                   c10::toString(buffer.scalar_type()), " ", shape_text(buffer), " on ", buffer.device().str(),
                   "; move or convert the model before the first update");
}

at::Tensor plain_gradient(const at::Tensor& param, at::Tensor grad, double grad_divisor) {
  if (grad_divisor != 1.0) {
    grad.div_(grad_divisor);
  }
  return grad.scalar_type() == param.scalar_type() ? grad : grad.to(param.scalar_type());
}

at::Tensor plain_gradient(const at::Tensor& param, at::Tensor grad, const DeviceScale& scale) {
  if (scale.divisor.defined()) {
    grad.div_(scale.divisor);
  }
  return plain_gradient(param, std::move(grad), 1.0);
}

OptimizerOptions complete(std::string_view optimizer, OptimizerOptions options, const OptimizerOptions& defaults) {
  const auto known = set_keys(defaults);
  for (const auto& key : set_keys(options)) {
    check<ConfigError>(std::find(known.begin(), known.end(), key) != known.end(), concat(optimizer, ".options"),
                       "expected options of ", optimizer, " (", join(known), "), got ", quote(key));
  }
  inherit(options, defaults);
  return options;
}

}  // namespace danling::inline v0::optim::detail
