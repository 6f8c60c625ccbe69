#include <danling/optim/layerwise.hpp>

#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <optim/layers.hpp>
#include <optim/memory.hpp>
#include <optim/plan.hpp>
#include <optim/rounding.hpp>
#include <optim/spans.hpp>

namespace danling::inline v0::optim {
namespace {

using detail::Layer;
using detail::LayerUpdate;

constexpr const char* layer_master_key = "master_param";

bool is_narrow(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

/// Returns whether the kernels can update a parameter: float64 only with a float64 gradient.
bool fits_kernels(const Layer& layer, const at::Tensor& grad) {
  const at::ScalarType dtype = layer.param.scalar_type();
  return detail::has_kernel(dtype) && detail::has_kernel(grad.scalar_type()) &&
         (dtype == at::kDouble) == (grad.scalar_type() == at::kDouble) && layer.param.is_cpu() &&
         layer.param.is_contiguous() && grad.is_contiguous() && !layer.overlaps && !grad.is_neg() &&
         !layer.param.is_neg();
}

}  // namespace

rules::Type detail::LayerUpdate::param_type() const { return kernel_type(layer->param.scalar_type()); }
rules::Type detail::LayerUpdate::grad_type() const { return kernel_type(grad.scalar_type()); }
rules::Type detail::LayerUpdate::state_type() const { return kernel_type(layer->state[0].scalar_type()); }

at::Tensor detail::bias_correction(double beta, const at::Tensor& count) { return at::pow(beta, count).neg_().add_(1); }

struct LayerwiseOptimizer::Impl {
  struct Group {
    OptimizerOptions options;  // complete; lr and weight_decay are set from the ParamGroup
    std::vector<Layer> layers;
  };
  const detail::LayerRule& rule;
  std::vector<Group> groups = {};
  std::vector<LayerUpdate> small = {}, large = {}, others = {};  // kept between updates to avoid allocations

  OptimizerOptions validated(const OptimizerOptions& given) const {
    OptimizerOptions options = rule.options().complete(given);
    detail::expect_not_negative(rule.name(), "lr", *options.lr);
    detail::expect_not_negative(rule.name(), "weight_decay", *options.weight_decay);
    rule.validate(options);
    return options;
  }

  bool needs_master(const Group& group, const at::Tensor& param) const {
    return *group.options.master_weights && is_narrow(param.scalar_type());
  }
  at::ScalarType state_dtype(const Group& group, const at::Tensor& param) const {
    const bool wide = needs_master(group, param) || (rule.has_wide_state() && is_narrow(param.scalar_type()));
    return wide ? at::kFloat : param.scalar_type();
  }

  void begin(const Group& group, Layer& layer) const {
    const auto options = layer.param.options().dtype(state_dtype(group, layer.param)).requires_grad(false);
    for (const auto& named : rule.layout(layer.param)) {
      layer.state.push_back(at::zeros(named.sizes, options));
    }
  }

  static double known_count(const Layer& layer) {
    return layer.count >= 0 ? layer.count : layer.device_count.item().toDouble();
  }

  /// Otherwise the lists would hold gradients after zero_grad().
  void clear_lists() {
    for (auto* list : {&small, &large, &others}) {
      list->clear();
    }
  }

  /// Sorts a group's parameters with gradients by the route of their update.
  void collect(const LayerwiseOptimizer& self, std::size_t g, double divisor, bool on_device) {
    Group& group = groups[g];
    group.options.lr = self.groups_[g].lr;
    group.options.weight_decay = self.groups_[g].weight_decay;
    const auto& params = self.groups_[g].params;
    clear_lists();  // also after an exception
    for (std::size_t i = 0; i < group.layers.size(); ++i) {
      Layer& layer = group.layers[i];
      if (params.size() != group.layers.size() || !params[i].is_same(layer.param)) [[unlikely]] {
        detail::throw_replaced(rule.name(), g);
      }
      const at::Tensor& grad = layer.param.grad();
      if (!grad.defined()) {
        continue;
      }
      const auto what = [&] { return self.describe(g, i); };
      detail::check_gradient(rule.name(), layer.param, grad, what);
      if (layer.state.empty()) [[unlikely]] {
        begin(group, layer);
      }
      if (!layer.master.defined() && needs_master(group, layer.param)) [[unlikely]] {  // or the option is new
        layer.master = layer.param.detach().to(at::kFloat).contiguous();
      }
      const at::ScalarType dtype = state_dtype(group, layer.param);
      for (const auto& state : layer.state) {
        if (state.device() != layer.param.device() || state.scalar_type() != dtype) [[unlikely]] {
          detail::throw_buffer(rule.name(), layer.param, dtype, state, "the state", what());
        }
      }
      const bool kernels = *group.options.fused && !on_device && fits_kernels(layer, grad);
      auto& list = !kernels ? others : layer.param.numel() >= detail::large_size ? large : small;
      list.push_back({&layer, grad, divisor});
    }
  }

  void count(LayerUpdate& item, const OptimizerOptions& options) const {
    Layer& layer = *item.layer;
    layer.count = known_count(layer) + 1;
    layer.device_count.reset();
    if (*options.stochastic_rounding && layer.param.scalar_type() == at::kBFloat16) {
      item.rounding = detail::rounding_key(layer.count, layer.number);
    }
  }

  void update(const LayerwiseOptimizer& self, double divisor) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      collect(self, g, divisor, /*on_device=*/false);
      const OptimizerOptions& options = groups[g].options;
      std::int64_t elements = 0;
      for (auto& item : small) {
        count(item, options);
        elements += item.layer->param.numel();
        detail::mark_changed(item.layer->param);
      }
      detail::for_parts(static_cast<std::int64_t>(small.size()), elements > detail::part_size, [&](std::int64_t i) {
        rule.update(options, small[static_cast<std::size_t>(i)], /*parallel=*/false);
      });
      for (auto& item : large) {
        count(item, options);
        detail::mark_changed(item.layer->param);
        rule.update(options, item, /*parallel=*/true);
      }
      for (auto& item : others) {
        count(item, options);
        update_tensors(options, *item.layer, item.grad, divisor, nullptr);
      }
    }
    clear_lists();
  }

  void update(const LayerwiseOptimizer& self, const GradScale& scale) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      collect(self, g, 1, /*on_device=*/true);
      std::optional<detail::DeviceScale> on_device;
      std::optional<at::Device> device;
      for (auto& item : others) {
        Layer& layer = *item.layer;
        if (device != layer.param.device()) {
          device = layer.param.device();
          on_device.emplace(scale, *device);
        }
        if (layer.count >= 0) {
          layer.device_count = at::full({}, layer.count, layer.param.options().dtype(at::kFloat).requires_grad(false));
          layer.count = -1;
        }
        layer.device_count = on_device->found_inf.defined() ? layer.device_count.add(on_device->count_increment())
                                                            : layer.device_count.add(1);
        update_tensors(groups[g].options, layer, item.grad, 1, &*on_device);
      }
    }
    clear_lists();
  }

  void update_tensors(const OptimizerOptions& options, Layer& layer, const at::Tensor& grad, double divisor,
                      const detail::DeviceScale* scale) const {
    const at::ScalarType dtype = layer.param.scalar_type();
    detail::LayerTensors tensors;
    tensors.param = detail::widened(layer.param.detach());
    if (layer.master.defined()) {
      // If the parameter changed since it was rounded from its copy, it replaces the copy.
      tensors.param = at::where(layer.master.to(dtype).eq(layer.param), layer.master, tensors.param);
    }
    tensors.grad = detail::widened(grad).to(tensors.param.scalar_type());
    if (scale != nullptr && scale->divisor.defined()) {
      tensors.grad = tensors.grad.div(scale->divisor);
    } else if (divisor != 1.0) {
      tensors.grad = tensors.grad.div(divisor);
    }
    for (const auto& state : layer.state) {
      tensors.state.push_back(detail::widened(state));
    }
    const at::Tensor count = layer.count >= 0 ? at::scalar_tensor(layer.count, at::kDouble) : layer.device_count;
    tensors.count = count.to(at::kDouble);
    rule.update(options, tensors, layer.master.defined() ? at::kFloat : dtype);

    const at::Tensor refused = scale != nullptr && scale->found_inf.defined() ? scale->found_inf.ne(0) : at::Tensor();
    const auto put = [&](const at::Tensor& to, const at::Tensor& value) {
      const at::Tensor narrow = value.to(to.scalar_type());
      to.copy_(refused.defined() ? at::where(refused, to, narrow) : narrow);
    };
    if (layer.master.defined()) {
      put(layer.master, tensors.param);
    }
    if (*options.stochastic_rounding && dtype == at::kBFloat16) {
      put(layer.param, detail::rounded_stochastically(tensors.param, detail::rounding_key(count, layer.number)));
    } else {
      put(layer.param, tensors.param);
    }
    for (std::size_t i = 0; i < layer.state.size(); ++i) {
      put(layer.state[i], tensors.state[i]);
    }
  }
};

LayerwiseOptimizer::LayerwiseOptimizer(const detail::LayerRule& rule, std::vector<at::Tensor> params,
                                       const OptimizerOptions& options, std::vector<std::string> names)
    : impl_(new Impl{rule}) {
  if (!params.empty() || !names.empty()) {
    LayerwiseOptimizer::add_param_group(std::move(params), options, std::move(names));
  }
}

LayerwiseOptimizer::~LayerwiseOptimizer() = default;

std::string_view LayerwiseOptimizer::name() const { return impl_->rule.name(); }

void LayerwiseOptimizer::add_param_group(std::vector<at::Tensor> params, const OptimizerOptions& given,
                                         std::vector<std::string> names) {
  Impl::Group group{impl_->validated(given), {}};
  std::uint32_t number = 0;
  for (const auto& other : impl_->groups) {
    number += static_cast<std::uint32_t>(other.layers.size());
  }
  for (const auto& param : params) {
    check<ConfigError>(!param.defined() || !param.is_complex(), concat(name(), ".add_param_group"),
                       "expected real parameters, got a complex one");
    group.layers.push_back({.param = param, .number = number++});
  }
  for (const std::size_t i : detail::find_overlapping(params)) {
    group.layers[i].overlaps = true;
  }
  add_group({std::move(params), std::move(names), *group.options.lr, std::nullopt, *group.options.weight_decay});
  impl_->groups.push_back(std::move(group));
}

OptimizerOptions LayerwiseOptimizer::options(std::size_t group) const {
  OptimizerOptions out = impl_->groups.at(group).options;
  out.lr = groups_.at(group).lr;
  out.weight_decay = groups_.at(group).weight_decay;
  return out;
}

void LayerwiseOptimizer::set_options(std::size_t group, const OptimizerOptions& given) {
  OptimizerOptions options = impl_->validated(given);
  groups_.at(group).lr = *options.lr;
  groups_.at(group).weight_decay = *options.weight_decay;
  impl_->groups.at(group).options = std::move(options);
}

std::optional<double> LayerwiseOptimizer::momentum(std::size_t group) const {
  const auto& betas = impl_->groups.at(group).options.betas;
  return betas ? std::optional(betas->first) : std::nullopt;
}

void LayerwiseOptimizer::set_momentum(std::size_t group, double value) {
  if (!momentum(group)) {
    Optimizer::set_momentum(group, value);
  }
  detail::expect_betas(name(), "betas", {value, 0});
  impl_->groups.at(group).options.betas->first = value;
}

void LayerwiseOptimizer::update(double grad_divisor) { impl_->update(*this, grad_divisor); }

void LayerwiseOptimizer::update_on_device(const GradScale& scale) { impl_->update(*this, scale); }

State LayerwiseOptimizer::state_dict() const {
  State::Map per_param;
  std::int64_t number = 0;
  for (const auto& group : impl_->groups) {
    for (const auto& layer : group.layers) {
      if (!layer.state.empty()) {
        State::Map entry{{"step", layer.count >= 0 ? at::scalar_tensor(layer.count, at::kFloat) : layer.device_count}};
        const auto layout = impl_->rule.layout(layer.param);
        for (std::size_t i = 0; i < layout.size(); ++i) {
          entry.set(layout[i].key, layer.state[i]);
        }
        if (layer.master.defined()) {
          entry.set(layer_master_key, layer.master);
        }
        per_param.set(number, std::move(entry));
      }
      ++number;
    }
  }
  return detail::write_state(groups_, std::move(per_param),
                             [&](std::size_t g) { return impl_->rule.write(options(g)); });
}

void LayerwiseOptimizer::load_state_dict(const State& state) {
  const detail::LayerRule& rule = impl_->rule;
  const detail::Target target{concat(name(), ".load_state_dict"), groups_,
                              [this](std::size_t g, std::size_t i) { return describe(g, i); }};
  const auto keys = rule.saved_keys();
  const auto saved = detail::read_state(target, state, keys);
  auto groups = impl_->groups;
  std::size_t number = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups[g].options.lr = saved.groups[g].lr;
    groups[g].options.weight_decay = saved.groups[g].weight_decay;
    rule.read(target, saved.groups[g], groups[g].options);
    for (std::size_t i = 0; i < groups[g].layers.size(); ++i) {
      Layer& layer = groups[g].layers[i];
      layer = {.param = layer.param, .number = layer.number, .overlaps = layer.overlaps};
      const State::Map* entry = saved.params[number++];
      if (entry == nullptr) {
        continue;
      }
      const std::string what = describe(g, i);
      const auto layout = rule.layout(layer.param);
      detail::expect_keys(target, what, *entry, {"step", layout.front().key, layout.back().key, layer_master_key});
      layer.count = detail::read_step(target, what, *entry, "step");
      const auto dtype = impl_->state_dtype(groups[g], layer.param);
      const auto options = layer.param.options().dtype(dtype).requires_grad(false);
      for (const auto& named : layout) {
        const at::Tensor like = at::empty(named.sizes, options);
        layer.state.push_back(detail::read_buffer(target, what, *entry, named.key, like, true));
      }
      if (impl_->needs_master(groups[g], layer.param)) {
        layer.master = detail::read_buffer(target, what, *entry, layer_master_key, layer.param, false, dtype);
        if (!layer.master.defined()) {
          layer.master = layer.param.detach().to(at::kFloat);
        }
        layer.master = layer.master.contiguous();
      }
    }
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    groups_[g].lr = *groups[g].options.lr;
    groups_[g].weight_decay = *groups[g].options.weight_decay;
    groups_[g].initial_lr = saved.groups[g].initial_lr;
  }
  impl_->groups = std::move(groups);
}

LAMB::LAMB(std::vector<at::Tensor> params, const OptimizerOptions& options, std::vector<std::string> names)
    : LayerwiseOptimizer(detail::lamb_rule(), std::move(params), options, std::move(names)) {}

Adafactor::Adafactor(std::vector<at::Tensor> params, const OptimizerOptions& options, std::vector<std::string> names)
    : LayerwiseOptimizer(detail::adafactor_rule(), std::move(params), options, std::move(names)) {}

}  // namespace danling::inline v0::optim
