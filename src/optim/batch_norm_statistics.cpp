#include <danling/optim/batch_norm_statistics.hpp>

#include <optional>
#include <type_traits>
#include <unordered_set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <torch/nn/modules/batchnorm.h>

namespace danling::inline v0::optim {

struct BatchNormStatistics::Layer {
  std::optional<double>* momentum;  // of the layer's options: none averages equally
  std::optional<double> saved_momentum;
  at::Tensor mean, var, batches;
  at::Tensor saved_mean = {}, saved_var = {}, saved_batches = {};

  void save() {
    saved_mean = mean.clone();
    saved_var = var.clone();
    saved_batches = batches.clone();
  }
  void reset() {
    mean.zero_();
    var.fill_(1);
    batches.zero_();
    momentum->reset();
  }
  void restore() {
    mean.copy_(saved_mean);
    var.copy_(saved_var);
    batches.copy_(saved_batches);
  }
};

namespace {

template <class Module, class T>
using Like = std::conditional_t<std::is_const_v<Module>, const T, T>;

// Calls `use` with the layer as its concrete type.
template <class Module, class Use>
bool with_batch_norm(Module& module, Use&& use) {
  const auto try_as = [&](auto* layer) {
    if (layer != nullptr && layer->running_mean.defined()) {
      use(*layer);
      return true;
    }
    return false;
  };
  return try_as(dynamic_cast<Like<Module, torch::nn::BatchNorm1dImpl>*>(&module)) ||
         try_as(dynamic_cast<Like<Module, torch::nn::BatchNorm2dImpl>*>(&module)) ||
         try_as(dynamic_cast<Like<Module, torch::nn::BatchNorm3dImpl>*>(&module));
}

}  // namespace

bool BatchNormStatistics::has_any(const torch::nn::Module& module) {
  bool found = false;
  module.apply([&](const torch::nn::Module& child) { found = with_batch_norm(child, [](const auto&) {}) || found; });
  return found;
}

BatchNormStatistics::BatchNormStatistics(const std::vector<torch::nn::Module*>& modules) {
  const at::NoGradGuard guard;
  std::unordered_set<const void*> seen;
  for (torch::nn::Module* module : modules) {
    module->apply([&](torch::nn::Module& child) {
      with_batch_norm(child, [&](auto& layer) {
        if (seen.insert(&layer).second) {
          auto& momentum = layer.options.momentum();
          layers_.push_back({&momentum, momentum, layer.running_mean, layer.running_var, layer.num_batches_tracked});
          layers_.back().save();
        }
      });
    });
  }
  for (Layer& layer : layers_) {  // after the last call that can throw
    layer.reset();
  }
}

BatchNormStatistics::~BatchNormStatistics() {
  const at::NoGradGuard guard;
  for (Layer& layer : layers_) {
    *layer.momentum = layer.saved_momentum;
    layer.restore();
  }
}

void BatchNormStatistics::finish(const Group& group) {
  const at::NoGradGuard guard;
  for (Layer& layer : layers_) {
    if (!group.alone()) {
      const at::Tensor batches = layer.batches.to(at::kDouble).reshape({1});
      at::Tensor sums = at::cat({layer.mean.to(at::kDouble) * batches, layer.var.to(at::kDouble) * batches, batches});
      group.all_reduce(sums);
      const auto features = layer.mean.numel();
      const at::Tensor total = sums.narrow(0, 2 * features, 1);
      layer.mean.copy_(sums.narrow(0, 0, features) / total);
      layer.var.copy_(sums.narrow(0, features, features) / total);
      layer.batches.copy_(total.reshape(layer.batches.sizes()));
    }
    if (layer.batches.item<std::int64_t>() == 0) {
      layer.restore();  // no pass ran through it
    }
    *layer.momentum = layer.saved_momentum;
  }
  layers_.clear();
}

void update_bn(torch::nn::Module& model, const std::function<bool()>& forward) {
  const bool was_training = model.is_training();
  BatchNormStatistics statistics({&model});
  const at::NoGradGuard guard;
  model.train();
  try {
    while (forward()) {
    }
  } catch (...) {
    model.train(was_training);
    throw;
  }
  model.train(was_training);
  statistics.finish();
}

}  // namespace danling::inline v0::optim
