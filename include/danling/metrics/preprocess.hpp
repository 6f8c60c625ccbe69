// Preprocessing of predictions and targets for the metrics of a task.
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
  /// Drops labels of this value, and their predictions.
  std::optional<std::int64_t> ignore_index = std::nullopt;
  /// Drops nan targets, and their predictions.
  bool ignore_nan = false;
};

/// Drops ignored samples (a device wait, since the number of the rest is needed); if prediction and target have as many
/// elements, also drops dimensions of size one behind the first. DanLing's base_preprocess.
/// @throws MetricError for undefined tensors, and when labels are to be ignored and the prediction does not begin with
/// the target's shape.
PredsTargets base_preprocess(const at::Tensor& prediction, const at::Tensor& target,
                             const PreprocessOptions& options = {});

// Preprocessing by task. All of these:
//
// - accept nested tensors as `concat_samples` does; if one of the two is nested, the other is padded to its samples;
// - return the input itself if it needs no change, and else tensors of its dtypes;
// - on the host drop ignored samples, and refuse labels outside the classes;
// - on a device never wait, hence drop nothing and check no label: metrics skip ignored samples.
//
// Logits become probabilities, integer ones in float32; see Scores for their detection. With `probabilities` false
// scores stay unchanged, and so do bool predictions, which are labels.

/// `prediction`: as many scores, or labels 0 and 1, as `target` has labels 0 and 1. Returns both with one dimension.
/// @throws MetricError for invalid shapes, types and devices, and on the host for other labels, and with
/// Scores::probabilities for values that are none.
PredsTargets preprocess_binary(const at::Tensor& prediction, const at::Tensor& target,
                               std::optional<std::int64_t> ignore_index = -100, Scores scores = Scores::detect);

struct MulticlassPreprocessOptions {
  std::optional<std::int64_t> ignore_index = -100;
  /// Dimension of the classes in the prediction. When absent, found from the shapes: the only one of `num_classes`
  /// whose removal yields the target's shape, else the last.
  std::optional<std::int64_t> class_dim = std::nullopt;
  bool probabilities = true;
  Scores scores = Scores::detect;
};

/// `prediction`: scores with a dimension of `num_classes` more than `target`, or integer labels of the target's shape.
/// `target`: integer labels. Returns scores [items, num_classes], or labels [items], and targets [items].
/// @throws MetricError as preprocess_binary, for labels outside the classes.
PredsTargets preprocess_multiclass(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_classes,
                                   const MulticlassPreprocessOptions& options = {});

/// `prediction`: as many scores, or labels 0 and 1, as `target` has labels 0 and 1; the last dimension holds the
/// labels of an item. Returns both as [items, num_labels]; drops an item when all its labels are ignored.
/// @throws MetricError as preprocess_binary.
PredsTargets preprocess_multilabel(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_labels,
                                   std::optional<std::int64_t> ignore_index = -100, Scores scores = Scores::detect);

/// Returns both as [items], or [items, num_outputs] for several outputs, in the target's floating dtype; a wider
/// prediction keeps its dtype (DanLing rounds it), an integer one is at least float32. With `ignore_nan`, drops items
/// with a nan target; on a device they stay, and all their targets become nan.
/// @throws MetricError for targets that are not floating, and for invalid shapes and devices.
PredsTargets preprocess_regression(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_outputs = 1,
                                   bool ignore_nan = true);

/// Dispatches by the task of `options`. @throws MetricError as that, and for both `num_classes` and `num_labels`.
PredsTargets preprocess_classification(const at::Tensor& prediction, const at::Tensor& target,
                                       const ClassificationOptions& options = {}, bool probabilities = true);

/// Joins samples of different sizes: predictions of a target's shape along the first dimension (or flattened if
/// the others differ too), predictions with one dimension more (the classes; `class_dim` of a sample, found from the
/// shapes when absent) as [items, classes].
/// @throws MetricError naming the sample, when the numbers of samples or the shapes of one do not fit.
PredsTargets concat_samples(at::TensorList predictions, at::TensorList targets,
                            std::optional<std::int64_t> class_dim = std::nullopt);

}  // namespace danling::inline v0::metrics
