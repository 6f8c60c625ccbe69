#include <danling/nn/lora_linear.hpp>

#include <cmath>
#include <memory>
#include <ostream>

#include <ATen/ops/addmm.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>

#include <danling/core/error.hpp>
#include <danling/nn/lora.hpp>

namespace danling::inline v0::nn {
namespace {

struct Factor : torch::nn::Module {
  explicit Factor(const at::Tensor& value) : weight(register_parameter("weight", value)) {}
  at::Tensor weight;
};

}  // namespace

double lora_scale(const LoraOptions& options) {
  const auto r = static_cast<double>(options.r.value_or(8));
  return options.lora_alpha.value_or(8.0) / (options.use_rslora.value_or(false) ? std::sqrt(r) : r);
}

LoraLinearImpl::LoraLinearImpl(std::int64_t in_features, std::int64_t out_features, const LoraOptions& options,
                               bool with_bias)
    : torch::nn::Module("danling::nn::LoraLinear"),
      scale(lora_scale(options)),
      dropout(options.lora_dropout.value_or(0.0)) {
  const std::int64_t r = options.r.value_or(8);
  check<ConfigError>(r > 0 && in_features > 0 && out_features > 0 && dropout >= 0 && dropout <= 1, "nn.LoraLinear",
                     "expected positive sizes, a positive r and lora_dropout from 0 to 1, got ", in_features, ", ",
                     out_features, ", ", r, " and ", dropout);
  const double bound = 1 / std::sqrt(static_cast<double>(in_features));  // torch.nn.Linear's bound, also for A
  const auto uniform = [bound](at::IntArrayRef sizes) {
    return torch::nn::init::uniform_(at::empty(sizes), -bound, bound);
  };
  weight = register_parameter("weight", uniform({out_features, in_features}), /*requires_grad=*/false);
  if (with_bias) {
    bias = register_parameter("bias", uniform({out_features}), /*requires_grad=*/false);
  }
  lora_A = register_module("lora_A", std::make_shared<Factor>(uniform({r, in_features})))->weight;
  lora_B = register_module("lora_B", std::make_shared<Factor>(at::zeros({out_features, r})))->weight;
}

at::Tensor LoraLinearImpl::forward(const at::Tensor& input) {
  const at::Tensor dropped = dropout > 0 ? at::dropout(input, dropout, is_training()) : input;
  return at::linear(input, weight, bias) + at::linear(at::linear(dropped, lora_A), lora_B) * scale;
}

void LoraLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "danling::nn::LoraLinear(in_features=" << weight.size(1) << ", out_features=" << weight.size(0)
         << ", bias=" << std::boolalpha << bias.defined() << ", r=" << lora_A.size(0) << ", scale=" << scale
         << ", lora_dropout=" << dropout << ")";
}

}  // namespace danling::inline v0::nn
