// Sums over predicted probabilities and scores, on the host and on devices. Input: the result of `checked_scores`.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/functional/calibration_error.hpp>
#include <danling/metrics/functional/hinge_loss.hpp>

#include <metrics/functional/score_columns.hpp>

namespace danling::inline v0::metrics::detail {

/// [columns, 3] (one column for binary and multiclass): the sum of -log p, the number of counted labels, and the number
/// of ones among them.
at::Tensor log_loss_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task);
at::Tensor log_loss_on_device(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task);

/// [losses + 1]: the sum of losses, or one sum per class, and the number of counted samples.
at::Tensor hinge_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task, bool squared,
                         HingeMode mode);
at::Tensor hinge_on_device(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task, bool squared,
                           HingeMode mode);

/// [n_bins + 1, 3]: per bin, the number of samples, the sum of confidences, and the number of correct samples.
at::Tensor calibration_on_host(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task,
                               const at::Tensor& limits);
at::Tensor calibration_on_device(const at::Tensor& scores, const at::Tensor& targets, const ScoreTask& task,
                                 std::int64_t n_bins);

/// The norm of the gaps of these bins.
double calibration_gap_on_host(const at::Tensor& bins, CalibrationNorm norm);
at::Tensor calibration_gap_on_device(const at::Tensor& bins, CalibrationNorm norm);

}  // namespace danling::inline v0::metrics::detail
