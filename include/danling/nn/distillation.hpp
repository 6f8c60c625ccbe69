// Knowledge distillation loss: compares the logits of a student with those of a teacher.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::nn {

/// T^2 KL(softmax(teacher / T) || softmax(student / T)), averaged over the counted targets (Hinton et al. 2015). T^2
/// keeps the gradients' magnitude when T changes. Logits are [N, C, ...]; computed in float32 or wider. The teacher
/// gets no gradient. Nothing waits for the device.
class DistillationLoss {
 public:
  /// @param ignore_index  positions whose integer target has this value do not count
  /// @throws ConfigError unless `temperature` is positive and finite
  explicit DistillationLoss(double temperature = 2.0, std::optional<std::int64_t> ignore_index = std::nullopt);

  /// Returns the mean; 0 with zero gradients if no position counts. `target`: integers [N, ...]; another one is not
  /// read.
  /// @throws DataError unless both are logits of the same two or more classes
  at::Tensor operator()(const at::Tensor& student, const at::Tensor& teacher, const at::Tensor& target = {}) const;
  /// Returns the sum of the loss and the number of counted positions.
  std::pair<at::Tensor, at::Tensor> sum_and_count(const at::Tensor& student, const at::Tensor& teacher,
                                                  const at::Tensor& target = {}) const;

 private:
  double temperature_;
  std::optional<std::int64_t> ignore_index_;
};

}  // namespace danling::inline v0::nn
