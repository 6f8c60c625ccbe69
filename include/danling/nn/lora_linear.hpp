// LoraLinear: a linear layer that contains a low-rank adapter, for models written with it.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <danling/nn/lora_options.hpp>

namespace danling::inline v0::nn {

/// y = x W^T + b + scale * dropout(x) A^T B^T (Hu et al., 2021). Unlike an adapter added by `lora.target_modules`, it
/// computes no gradient of the size of W, and supports `lora_dropout`. W and b are frozen by default.
/// Parameters: weight [out, in], bias [out], lora_A.weight [r, in], lora_B.weight [out, r].
class LoraLinearImpl : public torch::nn::Module {
 public:
  /// Reads r, lora_alpha, use_rslora and lora_dropout of `options`. @throws ConfigError for sizes, r or lora_dropout
  /// out of range
  LoraLinearImpl(std::int64_t in_features, std::int64_t out_features, const LoraOptions& options = {},
                 bool with_bias = true);

  /// @param input  [..., in_features]
  at::Tensor forward(const at::Tensor& input);
  void pretty_print(std::ostream& stream) const override;

  at::Tensor weight, bias, lora_A, lora_B;
  double scale;
  double dropout;
};
TORCH_MODULE(LoraLinear);

}  // namespace danling::inline v0::nn
