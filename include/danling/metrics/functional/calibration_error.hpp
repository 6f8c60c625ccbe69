// Calibration error: the gap between predicted probabilities and observed frequencies.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

/// Norm over the bins' gaps between confidence and accuracy.
enum class CalibrationNorm {
  l1,  ///< the mean, weighted by the size of the bins: the expected calibration error
  l2,  ///< the root of the mean square
  max  ///< the largest gap: the maximum calibration error
};

/// @throws ConfigError that lists the names.
CalibrationNorm parse_calibration_norm(std::string_view name);

struct CalibrationErrorOptions {
  /// Bins of equal width over [0, 1]. A confidence of exactly 1 has a separate bin, as in torchmetrics.
  std::int64_t n_bins = 15;
  CalibrationNorm norm = CalibrationNorm::l1;
  /// Targets of this value are ignored.
  std::optional<std::int64_t> ignore_index = -100;
};

// torchmetrics' calibration_error, named "calibration_error". Bins samples by confidence; the gap of a bin is that
// between its mean confidence and its share of correct predictions. Binary: the probability of 1 and the share of ones;
// multiclass: the highest probability and the share of samples whose class has it. Stored as sums per bin, which merge
// over batches. Lower is better. nan without data, or if a probability is nan. Nothing waits for a device.
// @throws MetricError for invalid options, shapes and labels; labels are not checked on a device.
MetricFunc binary_calibration_error(const CalibrationErrorOptions& options = {});
MetricFunc multiclass_calibration_error(std::int64_t num_classes, const CalibrationErrorOptions& options = {});

/// Multiclass with `num_classes`, else binary.
struct CalibrationOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;
  std::int64_t n_bins = 15;
  CalibrationNorm norm = CalibrationNorm::l1;
  std::optional<std::int64_t> ignore_index = -100;
  /// Dimension of the classes in the prediction; found from the shapes when absent.
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
};

/// Takes probabilities or logits and integer targets (binary: also floating 0 and 1); returns a float64 scalar.
at::Tensor calibration_error(const at::Tensor& input, const at::Tensor& target, const CalibrationOptions& options = {});

}  // namespace danling::inline v0::metrics
