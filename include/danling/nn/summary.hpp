// Summary of a model: layers, output shapes, parameters, memory and floating-point operations.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::nn {

/// A module of a model, with the tensors that it holds directly.
struct ModuleTensors {
  std::string name;
  std::string type;  ///< such as `Linear`
  std::vector<at::Tensor> parameters, buffers;
  /// Tensors computed from its parameters before the forward pass, such as a weight with its adapter.
  std::vector<at::Tensor> derived = {};
};

struct LayerSummary {
  std::string name;
  std::string type;
  std::int64_t parameters = 0;  ///< a tied parameter counts once, in the first layer
  std::int64_t trainable = 0;
  /// Shape from the last operation that used the layer's parameters; unset without parameters or without a forward
  /// pass.
  std::optional<std::vector<std::int64_t>> output = std::nullopt;
  std::int64_t flops = 0;
};

struct ModelSummary {
  std::vector<LayerSummary> layers;  ///< modules without children, and modules that hold tensors directly
  std::int64_t parameters = 0, trainable = 0;
  // Bytes. Gradients are those of all trainable parameters.
  std::int64_t parameter_bytes = 0, buffer_bytes = 0, gradient_bytes = 0;
  // Of one forward pass.
  std::int64_t batch_size = 0;    ///< 0: no forward pass
  std::int64_t output_bytes = 0;  ///< outputs of all operations: about the memory that training keeps for backward
  std::int64_t flops = 0;         ///< a multiplication and an addition count as two
  std::int64_t other_flops = 0;   ///< of operations without parameters, such as attention
  std::string problem;            ///< reason why a requested forward pass did not run

  /// A table, followed by lines with the totals.
  std::string text() const;
};

/// Counts tensors, and with `forward` the floating-point operations that it runs on this thread, by the formulas of
/// Python's torch.utils.flop_counter for matrix products, convolutions and attention (others count as 0). Assigns them
/// to the module whose parameters they use: LibTorch's C++ modules have no forward hooks. A layer without parameters,
/// such as an activation function, therefore has no output shape.
ModelSummary summarize(const std::vector<ModuleTensors>& modules, const std::function<void()>& forward = nullptr);

}  // namespace danling::inline v0::nn
