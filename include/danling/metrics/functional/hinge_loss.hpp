// Hinge loss: the loss of margins below 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>

namespace danling::inline v0::metrics {

enum class HingeMode {
  crammer_singer,  ///< the margin is the target's score minus the highest other score
  one_vs_all       ///< each class is a binary prediction: one loss per class
};

/// @throws ConfigError that lists the names.
HingeMode parse_hinge_mode(std::string_view name);

struct BinaryHingeOptions {
  /// Averages the squares.
  bool squared = false;
  /// Targets of this value are ignored.
  std::optional<std::int64_t> ignore_index = -100;
};

struct MulticlassHingeOptions {
  bool squared = false;
  HingeMode mode = HingeMode::crammer_singer;
  std::optional<std::int64_t> ignore_index = -100;
};

// The mean of max(0, 1 - margin): torchmetrics' hinge_loss, named "hinge_loss". The margin is the score, negated if the
// target is 0; for several classes see HingeMode. Uses scores unchanged: after preprocessing to probabilities the
// values equal torchmetrics'; without it (in a container: with `base_preprocess`), scikit-learn's for decision
// functions. Stored as sums, exact over batches. Lower is better. nan without data, or if a score is nan. Nothing waits
// for a device.
// @throws MetricError for invalid options, shapes and labels; labels are not checked on a device.
MetricFunc binary_hinge_loss(const BinaryHingeOptions& options = {});
MetricFunc multiclass_hinge_loss(std::int64_t num_classes, const MulticlassHingeOptions& options = {});

/// Multiclass with `num_classes`, else binary.
struct HingeLossOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;
  bool squared = false;
  HingeMode mode = HingeMode::crammer_singer;
  std::optional<std::int64_t> ignore_index = -100;
  /// Dimension of the classes in the prediction; found from the shapes when absent.
  std::optional<std::int64_t> class_dim = std::nullopt;
  /// Converts scores outside [0, 1] to probabilities first, as torchmetrics does; scikit-learn uses them unchanged.
  bool normalize = true;
};

/// Takes scores and integer targets (binary: also floating 0 and 1); returns a float64 scalar, or [classes] for
/// HingeMode::one_vs_all.
at::Tensor hinge_loss(const at::Tensor& input, const at::Tensor& target, const HingeLossOptions& options = {});

}  // namespace danling::inline v0::metrics
