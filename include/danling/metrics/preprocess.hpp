// What is done to predictions and targets before the metrics of a task see them.
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
  /// Labels of this value, and their predictions, are dropped.
  std::optional<std::int64_t> ignore_index = std::nullopt;
  /// Targets that are nan, and their predictions, are dropped.
  bool ignore_nan = false;
};

/// Drops what is to be ignored (a device wait, as the number of the rest is needed); where prediction and target have
/// as many elements, also drops dimensions of size one behind the first. DanLing's base_preprocess.
/// @throws MetricError for undefined tensors, and when something is to be ignored and the prediction does not begin
/// with the target's shape.
PredsTargets base_preprocess(const at::Tensor& prediction, const at::Tensor& target,
                             const PreprocessOptions& options = {});

// The tasks' own preprocessing. All of it:
//
// - takes nested tensors as `concat_samples` does; where one of the two is nested, the other is padded to its samples;
// - gives the input itself where nothing has to change, and else tensors of its dtypes;
// - on the host drops what does not count, and refuses labels outside the classes;
// - on a device waits for nothing, hence drops nothing and looks at no label: metrics leave out what does not count.
//
// Logits become probabilities, integer ones in float32; see Scores for what they are told by. With `probabilities`
// false all stay, and so do bool predictions, which are labels.

/// `prediction`: as many scores, or labels 0 and 1, as `target` has labels 0 and 1. Gives both with one dimension.
/// @throws MetricError for shapes, types and devices that do not fit, and on the host for other labels, and for what is
/// no probability where Scores::probabilities says so.
PredsTargets preprocess_binary(const at::Tensor& prediction, const at::Tensor& target,
                               std::optional<std::int64_t> ignore_index = -100, Scores scores = Scores::detect);

struct MulticlassPreprocessOptions {
  std::optional<std::int64_t> ignore_index = -100;
  /// Which dimension of the prediction holds the classes. Found from the shapes when absent: the only one of
  /// `num_classes` whose removal gives the target's shape, else the last.
  std::optional<std::int64_t> class_dim = std::nullopt;
  bool probabilities = true;
  Scores scores = Scores::detect;
};

/// `prediction`: scores with a dimension of `num_classes` more than `target`, or integer labels of the target's shape.
/// `target`: integer labels. Gives scores [items, num_classes], or labels [items], and targets [items].
/// @throws MetricError as preprocess_binary, labels being those of the classes.
PredsTargets preprocess_multiclass(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_classes,
                                   const MulticlassPreprocessOptions& options = {});

/// `prediction`: as many scores, or labels 0 and 1, as `target` has labels 0 and 1; the last dimension holds the
/// labels of an item. Gives both as [items, num_labels]; an item is dropped when all its labels are ignored.
/// @throws MetricError as preprocess_binary.
PredsTargets preprocess_multilabel(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_labels,
                                   std::optional<std::int64_t> ignore_index = -100, Scores scores = Scores::detect);

/// Gives both as [items], or [items, num_outputs] for several outputs, in the target's floating dtype; a wider
/// prediction keeps its own (DanLing rounds it), an integer one is at least float32. With `ignore_nan` an item with a
/// nan target is dropped; on a device it stays, and all its targets become nan.
/// @throws MetricError for targets that are not floating, and for shapes and devices that do not fit.
PredsTargets preprocess_regression(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_outputs = 1,
                                   bool ignore_nan = true);

/// That of the task that `options` names. @throws MetricError as that, and for both `num_classes` and `num_labels`.
PredsTargets preprocess_classification(const at::Tensor& prediction, const at::Tensor& target,
                                       const ClassificationOptions& options = {}, bool probabilities = true);

/// Joins samples of different sizes: predictions of a target's shape along the first dimension (or end to end where
/// the others differ too), predictions with one dimension more (the classes; `class_dim` of a sample, found from the
/// shapes when absent) as [items, classes].
/// @throws MetricError naming the sample, when the numbers of samples or the shapes of one do not fit.
PredsTargets concat_samples(at::TensorList predictions, at::TensorList targets,
                            std::optional<std::int64_t> class_dim = std::nullopt);

}  // namespace danling::inline v0::metrics
