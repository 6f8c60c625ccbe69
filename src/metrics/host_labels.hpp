// Labels on the host: reads, checks and drops rows with plain loops.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::metrics::detail {

/// Converts to contiguous int64. @throws MetricError for floating labels that are not whole numbers.
at::Tensor host_labels(const at::Tensor& labels, std::string_view where);

/// Number of labels that are not `ignore_index`. @throws MetricError naming the first other label outside the classes.
std::int64_t count_labels(const at::Tensor& host_labels, std::int64_t num_classes,
                          std::optional<std::int64_t> ignore_index, const char* where);

/// The rows of `tensor` (its first dimension) where `keep` is one; `kept` is their number.
at::Tensor keep_rows(const at::Tensor& tensor, const std::uint8_t* keep, std::int64_t kept);

/// Marks rows (of the first dimension) without nan with one, the others with zero; returns the number of ones.
std::int64_t mark_complete_rows(const at::Tensor& rows, std::uint8_t* keep);

}  // namespace danling::inline v0::metrics::detail
