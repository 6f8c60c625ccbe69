// Predictions and targets of a task in the shape that its metrics read, with nothing dropped.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include <danling/metrics/preprocess.hpp>

namespace danling::inline v0::metrics::detail {

// Checks shapes, types and devices, but not values; `where` begins the message of an error. No wait on devices.

/// Danling's or LibTorch's own.
bool is_nested(const at::Tensor& tensor);

/// Defined, real, on one device; nested tensors as dense ones. The class dimension only determines how samples are
/// joined.
PredsTargets dense_pair(const at::Tensor& prediction, const at::Tensor& target, const char* where,
                        std::optional<std::int64_t> num_classes = std::nullopt,
                        std::optional<std::int64_t> class_dim = std::nullopt);

/// Both as [rows, columns], or as [rows] with `columns` 0.
PredsTargets flat_pair(const at::Tensor& prediction, const at::Tensor& target, std::int64_t columns, const char* where);

/// Scores [items, num_classes], or labels [items], and integer targets [items].
PredsTargets flat_multiclass(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_classes,
                             std::optional<std::int64_t> class_dim, const char* where);

/// The dimension of `scores` that holds the classes: the only one (of `num_classes`, if known) whose removal yields the
/// shape of the target, the last if several do, nothing if none does.
std::optional<std::int64_t> find_class_dim(at::IntArrayRef scores, at::IntArrayRef target,
                                           std::optional<std::int64_t> num_classes);

/// Whether `scores` without the dimension `dim` have the shape of the target.
bool fits_without(at::IntArrayRef scores, std::int64_t dim, at::IntArrayRef target);

}  // namespace danling::inline v0::metrics::detail
