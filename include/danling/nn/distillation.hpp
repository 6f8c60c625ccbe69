// The loss of knowledge distillation: the logits of a student against those of a teacher.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::nn {

/// T^2 KL(softmax(teacher / T) || softmax(student / T)), averaged over the targets that count (Hinton et al. 2015). T^2
/// keeps the size of the gradients when T changes. Logits are [N, C, ...]; computed in float32 or wider. The teacher
/// gets no gradient. Nothing waits for the device.
class DistillationLoss {
 public:
  /// @param ignore_index  where the target is an integer of this value, the position does not count
  /// @throws ConfigError unless `temperature` is positive and finite
  explicit DistillationLoss(double temperature = 2.0, std::optional<std::int64_t> ignore_index = std::nullopt);

  /// The mean; 0, with zero gradients, where no position counts. `target` is [N, ...], and may be undefined.
  /// @throws DataError unless both are logits of the same two or more classes
  at::Tensor operator()(const at::Tensor& student, const at::Tensor& teacher, const at::Tensor& target = {}) const;
  /// Sum of the loss, and the number of positions that count.
  std::pair<at::Tensor, at::Tensor> sum_and_count(const at::Tensor& student, const at::Tensor& teacher,
                                                  const at::Tensor& target = {}) const;

 private:
  double temperature_;
  std::optional<std::int64_t> ignore_index_;
};

}  // namespace danling::inline v0::nn
