// Losses of logits and targets: cross entropy with label smoothing, binary cross entropy, focal losses.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/core/registry.hpp>
#include <danling/nn/loss_options.hpp>

namespace danling::inline v0::nn {

/// A loss of logits and targets: a runner's `criterion`, or a term of `Losses`. Computed in float32 or wider for any
/// dtype of the logits. The mean is over the targets that are not ignored; without any it is 0, with zero gradients.
/// Computing it does not wait for the device.
class TargetLoss {
 public:
  virtual ~TargetLoss();

  /// Returns the loss: a scalar, or with Reduction::none one value per target.
  at::Tensor operator()(const at::Tensor& prediction, const at::Tensor& target) const;
  /// Returns the sum of the loss and the divisor of its mean, both on the device.
  std::pair<at::Tensor, at::Tensor> sum_and_count(const at::Tensor& prediction, const at::Tensor& target) const;
  /// Number of targets that the mean counts: its weight in an accumulation window. Empty if the loss is not a mean.
  /// Waits for the device of `target` if targets may be ignored.
  std::optional<std::int64_t> normalizer(const at::Tensor& target) const;
  std::optional<std::int64_t> ignore_index() const { return options_.ignore_index; }
  /// Returns whether the loss is a mean whose divisor is the number of targets.
  virtual bool counts_targets() const;

 protected:
  /// @param known  names of the type's options, besides reduction
  /// @throws ConfigError when another option is set, or an option is out of range
  TargetLoss(std::string_view type, std::initializer_list<std::string_view> known, const LossOptions& options);
  const LossOptions& options() const { return options_; }
  /// The class weights on the device of the logits, in their dtype; undefined without class weights.
  at::Tensor class_weights(const at::Tensor& logits) const;

  /// Returns one value per target, 0 for ignored targets; `logits` are float32 or wider.
  virtual at::Tensor values(const at::Tensor& logits, const at::Tensor& target) const = 0;
  /// The divisor of the mean of `values`.
  virtual at::Tensor count(const at::Tensor& logits, const at::Tensor& target) const;
  virtual std::int64_t num_targets(const at::Tensor& target) const;
  /// The target value that is ignored.
  virtual std::optional<std::int64_t> ignored(const at::Tensor& target) const;

 private:
  LossOptions options_;
  mutable at::Tensor weights_;  // on the device and in the dtype of the last logits
};

/// torch.nn.CrossEntropyLoss: logits [N, C, ...] or [C]; targets are classes [N, ...], or probabilities of the logits'
/// shape. Options: reduction, ignore_index (for classes), label_smoothing, class_weights.
class CrossEntropyLoss final : public TargetLoss {
 public:
  explicit CrossEntropyLoss(const LossOptions& options = {});
  bool counts_targets() const override;

 private:
  at::Tensor values(const at::Tensor& logits, const at::Tensor& target) const override;
  at::Tensor count(const at::Tensor& logits, const at::Tensor& target) const override;
  std::int64_t num_targets(const at::Tensor& target) const override;
  std::optional<std::int64_t> ignored(const at::Tensor& target) const override;
};

/// torch.nn.BCEWithLogitsLoss: logits and targets of one shape. Label smoothing s changes a target t to
/// t (1 - s) + s / 2. Options: reduction, ignore_index, label_smoothing.
class BinaryCrossEntropyLoss final : public TargetLoss {
 public:
  explicit BinaryCrossEntropyLoss(const LossOptions& options = {});

 private:
  at::Tensor values(const at::Tensor& logits, const at::Tensor& target) const override;
};

/// Focal loss of classes (Lin et al. 2017): -w[t] (1 - p[t])^gamma log p[t], with p = softmax. Shapes as in
/// CrossEntropyLoss, without probabilities. The mean counts targets, not weights.
/// Options: reduction, ignore_index, gamma, class_weights.
class FocalLoss final : public TargetLoss {
 public:
  explicit FocalLoss(const LossOptions& options = {});

 private:
  at::Tensor values(const at::Tensor& logits, const at::Tensor& target) const override;
};

/// Focal loss of binary targets, torchvision.ops.sigmoid_focal_loss: logits and targets of one shape.
/// Options: reduction, ignore_index, gamma, alpha.
class SigmoidFocalLoss final : public TargetLoss {
 public:
  explicit SigmoidFocalLoss(const LossOptions& options = {});

 private:
  at::Tensor values(const at::Tensor& logits, const at::Tensor& target) const override;
};

/// Converts logits narrower than float32 to float32.
at::Tensor widened(const at::Tensor& logits);

/// Losses by their `type` in `losses`: cross_entropy, binary_cross_entropy, focal, sigmoid_focal, mse, l1, and types
/// that the program adds.
using LossRegistry = Registry<std::shared_ptr<TargetLoss>(const LossOptions&)>;
LossRegistry& losses();

}  // namespace danling::inline v0::nn
