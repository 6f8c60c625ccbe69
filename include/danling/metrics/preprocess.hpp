// Preprocesses predictions and targets for the metrics of a task.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/metrics/options.hpp>

namespace danling::inline v0::metrics {

/// Predictions and targets.
using PredsTargets = std::pair<at::Tensor, at::Tensor>;

struct PreprocessOptions {
  /// Drops labels of this value and their predictions.
  std::optional<std::int64_t> ignore_index = std::nullopt;
  /// Drops nan targets and their predictions.
  bool ignore_nan = false;
};

/// Drops ignored samples, which waits for the device, since the result's size depends on the data. If prediction and
/// target have the same number of elements, also drops dimensions of size one after the first. DanLing's
/// base_preprocess.
/// @throws MetricError for undefined tensors; and if labels are ignored, when the prediction's shape does not begin
/// with the target's shape.
PredsTargets base_preprocess(const at::Tensor& prediction, const at::Tensor& target,
                             const PreprocessOptions& options = {});

// Preprocessing by task. All of these functions:
//
// - accept nested tensors as `concat_samples` does; if only one is nested, the other is padded to its samples;
// - return the input itself if it needs no change, otherwise tensors of its dtypes, except where stated;
// - on the host drop ignored samples, and throw for labels outside the classes;
// - on a device never wait: they drop nothing and check no label, and metrics skip ignored samples.
//
// Logits become probabilities (integer logits in float32); see Scores for their detection. With `probabilities` false,
// scores stay unchanged, and so do bool predictions, which are labels.

/// `prediction`: scores, or labels 0 and 1, as many as `target` has elements; `target`: labels 0 and 1. Returns both
/// with one dimension.
/// @throws MetricError for invalid shapes, types and devices; on the host also for other labels, and for scores outside
/// [0, 1] with Scores::probabilities.
PredsTargets preprocess_binary(const at::Tensor& prediction, const at::Tensor& target,
                               std::optional<std::int64_t> ignore_index = -100, Scores scores = Scores::detect);

struct MulticlassPreprocessOptions {
  std::optional<std::int64_t> ignore_index = -100;
  /// Dimension of the classes in the prediction. When absent: the dimension of size `num_classes` whose removal yields
  /// the target's shape. If several fit: dimension 1, as CrossEntropyLoss reads. Set it for [N, L, classes] where L may
  /// equal `num_classes`.
  std::optional<std::int64_t> class_dim = std::nullopt;
  bool probabilities = true;
  Scores scores = Scores::detect;
};

/// `prediction`: scores with the target's shape and an additional dimension of `num_classes`, or integer labels of the
/// target's shape. `target`: integer labels. Returns scores [items, num_classes] or labels [items], and targets
/// [items].
/// @throws MetricError as preprocess_binary, also for labels outside the classes.
PredsTargets preprocess_multiclass(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_classes,
                                   const MulticlassPreprocessOptions& options = {});

/// `prediction`: scores, or labels 0 and 1, as many as `target` has elements; the last dimension holds the labels of an
/// item. `target`: labels 0 and 1. Returns both as [items, num_labels]; drops an item when all its labels are ignored.
/// @throws MetricError as preprocess_binary.
PredsTargets preprocess_multilabel(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_labels,
                                   std::optional<std::int64_t> ignore_index = -100, Scores scores = Scores::detect);

/// Returns both as [items], or [items, num_outputs] for several outputs, in the target's floating dtype; a wider
/// prediction keeps its dtype (DanLing rounds it), an integer prediction becomes at least float32. With `ignore_nan`,
/// drops items with a nan target; on a device they stay, and all their targets become nan.
/// @throws MetricError for targets that are not floating, and for invalid shapes and devices.
PredsTargets preprocess_regression(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_outputs = 1,
                                   bool ignore_nan = true);

/// Dispatches by the task of `options`. @throws MetricError as that function, and when both numbers are set.
PredsTargets preprocess_classification(const at::Tensor& prediction, const at::Tensor& target,
                                       const ClassificationOptions& options = {}, bool probabilities = true);

/// Joins samples of different sizes. Predictions of the target's shape: along the first dimension, or flattened if
/// other dimensions differ too. Predictions with an additional dimension, the classes: as [items, classes]; `class_dim`
/// is that of a sample, found from the shapes when absent.
/// @throws MetricError naming the sample, when the numbers of samples differ or the shapes of a sample do not match.
PredsTargets concat_samples(at::TensorList predictions, at::TensorList targets,
                            std::optional<std::int64_t> class_dim = std::nullopt);

}  // namespace danling::inline v0::metrics
