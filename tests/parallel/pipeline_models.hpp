// Models in stages, and the same models whole, for tests of pipelines.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn.h>

#include <danling/parallel/pipeline.hpp>

namespace pipeline_test {

using Tensors = std::vector<at::Tensor>;

inline at::Tensor normal(at::IntArrayRef sizes, std::int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(seed));
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kDouble));
}

/// Layers that are stages, or the whole when they run one after the other.
struct Layers {
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  std::vector<std::function<Tensors(const Tensors&)>> forward;
  std::function<at::Tensor(const Tensors& outputs, const at::Tensor& target)> loss;

  /// Values that do not depend on the global generator, which threads share.
  void fill() {
    std::int64_t seed = 1;
    for (const auto& module : modules) {
      for (auto& parameter : module->parameters()) {
        const torch::NoGradGuard no_grad;
        parameter.set_data(normal(parameter.sizes(), seed++) * 0.3);
      }
    }
  }
};

inline Layers mlp(std::int64_t stages) {
  using namespace torch::nn;
  Layers out;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    Sequential block(Linear(6, 6), Tanh(), LayerNorm(LayerNormOptions({6})), Linear(6, 6));
    out.modules.push_back(block.ptr());
    out.forward.push_back([block](const Tensors& inputs) mutable { return Tensors{block->forward(inputs[0])}; });
  }
  out.loss = [](const Tensors& outputs, const at::Tensor& target) { return (outputs[0] - target).square().sum(); };
  out.fill();
  return out;
}

/// The input is tokens and a mask. Stages pass hidden values, the mask and a running sum without a gradient.
inline Layers transformer(std::int64_t stages) {
  using namespace torch::nn;
  Layers out;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    auto all = std::make_shared<torch::nn::Module>();
    auto layer = TransformerEncoderLayer(TransformerEncoderLayerOptions(8, 2).dim_feedforward(12).dropout(0));
    all->register_module("layer", layer);
    Embedding embedding = nullptr;
    Linear head = nullptr;
    if (stage == 0) {
      embedding = all->register_module("embedding", Embedding(11, 8));
    }
    if (stage + 1 == stages) {
      head = all->register_module("head", Linear(8, 11));
    }
    out.modules.push_back(all);
    out.forward.push_back([=](const Tensors& inputs) mutable -> Tensors {
      at::Tensor hidden = embedding.is_empty() ? inputs[0] : embedding(inputs[0]);
      hidden = layer->forward(hidden, {}, inputs[1].t());
      const at::Tensor sum = hidden.detach().sum();
      if (!head.is_empty()) {
        return {head(hidden), inputs[1]};
      }
      return {hidden, inputs[1], sum};
    });
  }
  out.loss = [](const Tensors& outputs, const at::Tensor& target) {
    return torch::nn::functional::cross_entropy(outputs[0].flatten(0, 1), target.flatten());
  };
  out.fill();
  return out;
}

/// The results of one process: losses by micro-batch, and gradients by parameter of all stages in order.
struct Expected {
  Tensors losses;
  std::vector<Tensors> gradients;  ///< by stage
};

inline Expected whole(const std::function<Layers(std::int64_t)>& make, std::int64_t stages,
                      const std::vector<Tensors>& inputs, const Tensors& targets) {
  Layers layers = make(stages);
  Expected out;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors values = inputs[i];
    for (const auto& forward : layers.forward) {
      values = forward(values);
    }
    const at::Tensor loss = layers.loss(values, targets[i]);
    loss.backward();
    out.losses.push_back(loss.detach());
  }
  for (const auto& module : layers.modules) {
    out.gradients.emplace_back();
    for (const auto& parameter : module->parameters()) {
      out.gradients.back().push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    }
  }
  return out;
}

/// The stages of a rank.
inline std::vector<danling::parallel::PipelineStage> stages_of(const Layers& layers,
                                                               const danling::parallel::PipelinePlan& plan,
                                                               std::int64_t rank) {
  std::vector<danling::parallel::PipelineStage> out;
  for (const auto stage : plan.stages_of_rank(rank)) {
    out.push_back({stage, layers.forward[static_cast<std::size_t>(stage)]});
  }
  return out;
}

inline bool near(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || (a.sizes() == b.sizes() && at::allclose(a, b, 1e-9, 1e-10)));
}

}  // namespace pipeline_test
