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

/// A loss of logits and targets: a runner's `criterion`, or a term of `Losses`. Computed in float32 or wider, whatever
/// the type of the logits. The mean is taken over the targets that are not ignored, and is 0, with zero gradients,
/// where there are none. Nothing waits for the device.
class TargetLoss {
 public:
  virtual ~TargetLoss();

  at::Tensor operator()(const at::Tensor& prediction, const at::Tensor& target) const;
  /// Sum of the loss and the divisor of its mean, both on the device.
  std::pair<at::Tensor, at::Tensor> sum_and_count(const at::Tensor& prediction, const at::Tensor& target) const;
  /// How many targets the mean counts: its weight in an accumulation window. Nothing where the loss is no mean. Waits
  /// for the device of `target` when targets may be ignored.
  std::optional<std::int64_t> normalizer(const at::Tensor& target) const;
  std::optional<std::int64_t> ignore_index() const { return options_.ignore_index; }
  /// Whether the loss is a mean whose divisor is an integer, the number of targets.
  virtual bool counts_targets() const;

 protected:
  /// @param known  the names of the type's options, besides reduction
  /// @throws ConfigError for another option that is set, or one out of range
  TargetLoss(std::string_view type, std::initializer_list<std::string_view> known, const LossOptions& options);
  const LossOptions& options() const { return options_; }
  /// The class weights on the device of the logits, in their type; undefined without any.
  at::Tensor class_weights(const at::Tensor& logits) const;

  /// One value per target, 0 for ignored ones; `logits` are float32 or wider.
  virtual at::Tensor values(const at::Tensor& logits, const at::Tensor& target) const = 0;
  /// The divisor of the mean of `values`.
  virtual at::Tensor count(const at::Tensor& logits, const at::Tensor& target) const;
  virtual std::int64_t num_targets(const at::Tensor& target) const;
  /// The value of targets that do not count.
  virtual std::optional<std::int64_t> ignored(const at::Tensor& target) const;

 private:
  LossOptions options_;
  mutable at::Tensor weights_;  // on the device and in the type of the last logits
};

/// torch.nn.CrossEntropyLoss: logits [N, C, ...] or [C]; classes [N, ...], or probabilities shaped as the logits.
/// Options: reduction, ignore_index (of classes), label_smoothing, class_weights.
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

/// torch.nn.BCEWithLogitsLoss: logits and targets of one shape. Label smoothing moves a target t to t (1 - s) + s / 2.
/// Options: reduction, ignore_index, label_smoothing.
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

/// Logits in float32 instead of a narrower type.
at::Tensor widened(const at::Tensor& logits);

/// Losses by `losses.<name>.type`: cross_entropy, binary_cross_entropy, focal, sigmoid_focal, mse, l1, and those of
/// the program.
using LossRegistry = Registry<std::shared_ptr<TargetLoss>(const LossOptions&)>;
LossRegistry& losses();

}  // namespace danling::inline v0::nn
