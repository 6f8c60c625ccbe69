// Reshapes predictions and targets to the shape that the metrics of a task read, without dropping any.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/preprocess.hpp>

namespace danling::inline v0::metrics::detail {

// Checks shapes, dtypes and devices, but not values; `where` is the prefix of errors. Never waits for a device.

/// Accepts danling's and LibTorch's nested tensors.
bool is_nested(const at::Tensor& tensor);

/// Checks that both are defined, real and on one device; converts nested tensors to dense ones. The class dimension
/// only affects how samples are joined.
PredsTargets dense_pair(const at::Tensor& prediction, const at::Tensor& target, const char* where,
                        std::optional<std::int64_t> num_classes = std::nullopt,
                        std::optional<std::int64_t> class_dim = std::nullopt);

/// Both as [rows, columns], or as [rows] if `columns` is 0.
PredsTargets flat_pair(const at::Tensor& prediction, const at::Tensor& target, std::int64_t columns, const char* where);

/// Scores [items, num_classes], or labels [items], and integer targets [items].
PredsTargets flat_multiclass(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_classes,
                             std::optional<std::int64_t> class_dim, const char* where);

/// The dimension of `scores` that holds the classes: the one (of size `num_classes`, if known) whose removal yields the
/// target's shape. If several fit: dimension 1 if it is among them, otherwise the first. Empty if none fits.
std::optional<std::int64_t> find_class_dim(at::IntArrayRef scores, at::IntArrayRef target,
                                           std::optional<std::int64_t> num_classes);

/// Returns whether `scores` without the dimension `dim` have the target's shape.
bool fits_without(at::IntArrayRef scores, std::int64_t dim, at::IntArrayRef target);

}  // namespace danling::inline v0::metrics::detail
