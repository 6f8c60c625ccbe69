// Labels on the host: reading, checking and dropping rows, by plain loops.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::metrics::detail {

/// As contiguous int64. @throws MetricError for floating labels that are no integers.
at::Tensor host_labels(const at::Tensor& labels, const char* where);

/// Number of labels that are not `ignore_index`. @throws MetricError naming the first other label outside the classes.
std::int64_t count_labels(const at::Tensor& host_labels, std::int64_t num_classes,
                          std::optional<std::int64_t> ignore_index, const char* where);

/// The rows of `tensor` (its first dimension) for which `keep` has a one; `kept` is their number.
at::Tensor keep_rows(const at::Tensor& tensor, const std::uint8_t* keep, std::int64_t kept);

/// Marks the rows (of the first dimension) without nan with a one, the others with a zero, and counts the ones.
std::int64_t mark_complete_rows(const at::Tensor& rows, std::uint8_t* keep);

}  // namespace danling::inline v0::metrics::detail
