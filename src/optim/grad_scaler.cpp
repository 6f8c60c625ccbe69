#include <danling/optim/grad_scaler.hpp>

#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <danling/config/fields.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>
#include <danling/optim/clip.hpp>

#include <optim/memory.hpp>
#include <optim/params_of.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0::optim {
namespace {

constexpr GradScalerOptions scaler_defaults = {
    .init_scale = 65536.0, .growth_factor = 2.0, .backoff_factor = 0.5, .growth_interval = 2000};

/// @throws E for an option out of range
template <class E>
void check_options(const GradScalerOptions& options, const char* where) {
  check<E>(*options.init_scale > 0 && std::isfinite(*options.init_scale), where,
           "expected a positive, finite scale, got ", *options.init_scale);
  check<E>(*options.growth_factor > 1, where, "expected a growth_factor above 1, got ", *options.growth_factor);
  check<E>(*options.backoff_factor > 0 && *options.backoff_factor < 1, where,
           "expected a backoff_factor between 0 and 1, got ", *options.backoff_factor);
  check<E>(*options.growth_interval >= 1, where, "expected a growth_interval of at least 1, got ",
           *options.growth_interval);
}

/// Gradients of one device and dtype, as the kernel expects them, with the flag on that device.
struct GradBatch {
  std::vector<at::Tensor> grads;
  at::Tensor found_inf;
};

std::vector<GradBatch> batches_to_unscale(const std::vector<at::Tensor>& params) {
  std::vector<GradBatch> out;
  for (const auto& param : params) {
    const at::Tensor& grad = param.grad();
    if (!grad.defined() || grad.numel() == 0) {
      continue;
    }
    constexpr auto where = "optim.GradScaler.unscale";
    check<StateError>(grad.layout() == c10::kStrided, where, "expected dense gradients, got a sparse one");
    check<StateError>(grad.scalar_type() != at::kHalf, where,
                      "expected gradients that float16 cannot round to zero, got float16 ones; call step() alone, "
                      "which divides in float32");
    GradBatch* batch = nullptr;
    for (auto& candidate : out) {
      if (candidate.grads[0].device() == grad.device() && candidate.grads[0].scalar_type() == grad.scalar_type()) {
        batch = &candidate;
      }
    }
    if (batch == nullptr) {
      batch = &out.emplace_back();
      batch->found_inf = at::zeros({}, at::TensorOptions().device(grad.device()).dtype(at::kFloat));
    }
    batch->grads.push_back(grad);
  }
  return out;
}

}  // namespace

void GradScalerOptions::fields(Fields& f) {
  f("init_scale", init_scale, "first factor of the loss; unset: 65536").above(0);
  f("growth_factor", growth_factor, "the scale grows by this factor; unset: 2").above(1);
  f("backoff_factor", backoff_factor, "the scale shrinks by this factor after an overflow; unset: 0.5").range(0, 1);
  f("growth_interval", growth_interval, "updates without an overflow before the scale grows; unset: 2000").at_least(1);
}

GradScaler::GradScaler(at::Device device, const GradScalerOptions& options) : device_(device), options_(options) {
  inherit(options_, scaler_defaults);
  check_options<ConfigError>(options_, "optim.GradScaler");
  scale_ = at::full({}, *options_.init_scale, at::TensorOptions().device(device).dtype(at::kFloat));
  growth_tracker_ = at::zeros({}, at::TensorOptions().device(device).dtype(at::kInt));
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  return at::mul(loss, tensors::moved(scale_, loss.device()));
}

at::Tensor GradScaler::unscale(const std::vector<at::Tensor>& params) const {
  const at::NoGradGuard no_grad;
  detail::separate_gradients(params);
  const at::Tensor inverse = scale_.to(at::kDouble).reciprocal_().to(at::kFloat);
  at::Tensor found_inf = at::zeros({}, scale_.options());
  for (GradBatch& batch : batches_to_unscale(params)) {
    at::_amp_foreach_non_finite_check_and_unscale_(batch.grads, batch.found_inf,
                                                   tensors::moved(inverse, batch.grads[0].device()));
    found_inf.add_(tensors::moved(batch.found_inf, device_));
  }
  return found_inf;
}

void GradScaler::unscale(Optimizer& optimizer) {
  check<StateError>(!checks_.contains(&optimizer), "optim.GradScaler.unscale",
                    "expected one call per optimizer before update(), got another after unscale() or step()");
  checks_[&optimizer].found_inf = unscale(detail::params_of(optimizer));
}

void GradScaler::step(Optimizer& optimizer) {
  const auto [found, ready] = checks_.try_emplace(&optimizer);
  Check& check_of = found->second;
  check<StateError>(!check_of.stepped, "optim.GradScaler.step",
                    "expected one call per optimizer before update(), got a second");
  GradScale scale;
  try {
    if (ready) {
      check_of.found_inf = tensors::moved(nonfinite_flag(detail::params_of(optimizer)), device_);
      scale.scale = scale_;
    }
    scale.found_inf = check_of.found_inf;
    optimizer.step(scale);
  } catch (...) {
    if (ready) {
      checks_.erase(found);  // so that a later call does not take it for an unscale()
    }
    throw;
  }
  check_of.stepped = true;
}

void GradScaler::update() {
  check<StateError>(!checks_.empty(), "optim.GradScaler.update",
                    "expected step() or unscale() of an optimizer before, got none since the last update()");
  at::Tensor found_inf;
  for (const auto& [optimizer, found] : checks_) {
    found_inf = found_inf.defined() ? found_inf.add(found.found_inf) : found.found_inf;
  }
  update(found_inf);
  checks_.clear();
}

void GradScaler::update(const at::Tensor& found_inf) {
  check<StateError>(found_inf.defined() && found_inf.numel() == 1, "optim.GradScaler.update",
                    "expected a found_inf of one element, got ", found_inf.defined() ? found_inf.numel() : 0);
  const at::NoGradGuard no_grad;
  // A copy: queued work of the optimizer and seeds of backward passes refer to the previous scale.
  scale_ = scale_.clone();
  at::_amp_update_scale_(scale_, growth_tracker_, tensors::moved(found_inf.detach().reshape({}), device_, at::kFloat),
                         *options_.growth_factor, *options_.backoff_factor, *options_.growth_interval);
}

void GradScaler::set_scale(double scale) {
  check<ConfigError>(scale > 0 && std::isfinite(scale), "optim.GradScaler.set_scale",
                     "expected a positive, finite scale, got ", scale);
  scale_ = at::full({}, scale, scale_.options());
}

double GradScaler::get_scale() const { return scale_.item().toDouble(); }

std::int64_t GradScaler::growth_tracker() const { return growth_tracker_.item().toLong(); }

State GradScaler::state_dict() const {
  return State::Map{{"scale", get_scale()},
                    {"growth_factor", *options_.growth_factor},
                    {"backoff_factor", *options_.backoff_factor},
                    {"growth_interval", *options_.growth_interval},
                    {"_growth_tracker", growth_tracker()}};
}

void GradScaler::load_state_dict(const State& state) {
  constexpr auto where = "optim.GradScaler.load_state_dict";
  check<StateError>(state.is_map() && !std::as_const(state).map().empty(), where,
                    "expected the state of a GradScaler, got ",
                    state.is_map() ? "an empty map, as a disabled one saves" : state.kind());
  const auto number = [&](const char* key) -> const State& {
    const State* found = state.find(key);
    const bool integer = std::string_view(key) == "growth_interval" || std::string_view(key) == "_growth_tracker";
    check<StateError>(found != nullptr && (found->is_integer() || (!integer && found->is_double())), where, "expected ",
                      integer ? "an integer" : "a number", " for ", quote(key), ", got ",
                      found == nullptr ? "none" : found->kind());
    return *found;
  };
  GradScalerOptions loaded = options_;
  loaded.init_scale = number("scale").number();  // only for the checks
  loaded.growth_factor = number("growth_factor").number();
  loaded.backoff_factor = number("backoff_factor").number();
  loaded.growth_interval = number("growth_interval").integer();
  const std::int64_t tracker = number("_growth_tracker").integer();
  check_options<StateError>(loaded, where);
  check<StateError>(tracker >= 0, where, "expected a _growth_tracker of at least 0, got ", tracker);
  scale_ = at::full({}, *loaded.init_scale, scale_.options());
  growth_tracker_.fill_(tracker);
  loaded.init_scale = options_.init_scale;
  options_ = loaded;
  checks_.clear();
}

}  // namespace danling::inline v0::optim
