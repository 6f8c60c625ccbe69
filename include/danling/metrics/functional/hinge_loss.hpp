// The loss of margins that are smaller than 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0::metrics {

enum class HingeMode {
  crammer_singer,  ///< the score of the target above the highest other one
  one_vs_all       ///< each class as a binary prediction: one loss per class
};

/// @throws ConfigError that lists the names.
HingeMode parse_hinge_mode(std::string_view name);

struct BinaryHingeOptions {
  /// Of the square.
  bool squared = false;
  /// Targets of this value do not count.
  std::optional<std::int64_t> ignore_index = -100;
};

struct MulticlassHingeOptions {
  bool squared = false;
  HingeMode mode = HingeMode::crammer_singer;
  std::optional<std::int64_t> ignore_index = -100;
};

// The mean of max(0, 1 - margin), torchmetrics' hinge_loss, named "hinge_loss". The margin is the score, negated where
// the target is 0; for several classes see HingeMode. Scores are taken as they come: preprocessing that turns logits
// into probabilities gives torchmetrics' values, none gives scikit-learn's of decision functions (in a container: with
// `base_preprocess`). Sums, which add up over batches exactly. Lower is better. nan without data, and where a score is
// nan. On a device nothing waits.
// @throws MetricError for options, shapes and labels that do not fit; on a device labels are not checked.
MetricFunc binary_hinge_loss(const BinaryHingeOptions& options = {});
MetricFunc multiclass_hinge_loss(std::int64_t num_classes, const MulticlassHingeOptions& options = {});

/// With `num_classes` multiclass, else binary.
struct HingeLossOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;
  bool squared = false;
  HingeMode mode = HingeMode::crammer_singer;
  std::optional<std::int64_t> ignore_index = -100;
  /// Which dimension of the prediction holds the classes; found from the shapes when absent.
  std::optional<std::int64_t> class_dim = std::nullopt;
  /// Whether scores outside [0, 1] first become probabilities, as in torchmetrics; scikit-learn takes them as they are.
  bool normalize = true;
};

/// Of scores and integer targets: a float64 scalar, or [classes] for HingeMode::one_vs_all.
at::Tensor hinge_loss(const at::Tensor& input, const at::Tensor& target, const HingeLossOptions& options = {});

}  // namespace danling::inline v0::metrics
