#include <metrics/host_labels.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <ATen/EmptyTensor.h>

#include <danling/core/error.hpp>

#include <tensors/raw.hpp>

namespace danling::inline v0::metrics::detail {
namespace {

template <class T>
std::int64_t mark_without_nan(const at::Tensor& rows, std::uint8_t* keep) {
  const T* data = rows.const_data_ptr<T>();
  const std::int64_t columns = rows.dim() == 1 ? 1 : rows.size(1);
  std::int64_t kept = 0;
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    bool complete = true;
    for (std::int64_t i = 0; i < columns; ++i) {
      complete &= !std::isnan(static_cast<double>(*data++));
    }
    keep[row] = complete ? 1 : 0;
    kept += complete ? 1 : 0;
  }
  return kept;
}

[[noreturn]] void refuse_label(const char* where, std::int64_t num_classes, std::optional<std::int64_t> ignore_index,
                               const std::string& got, std::int64_t position) {
  const std::string ignored = ignore_index ? concat(", or ", *ignore_index, " to ignore") : "";
  fail<MetricError>(where, "expected labels from 0 to ", num_classes - 1, ignored, ", got ", got, " at position ",
                    position);
}

}  // namespace

at::Tensor host_labels(const at::Tensor& labels, std::string_view where) {
  if (labels.scalar_type() == at::kLong) {
    return labels.is_contiguous() ? labels : labels.contiguous();
  }
  if (at::isFloatingType(labels.scalar_type())) {
    const at::Tensor exact = tensors::raw(labels.to(at::kDouble));
    const double* data = exact.const_data_ptr<double>();
    for (std::int64_t i = 0; i < exact.numel(); ++i) {
      if (!(data[i] == std::trunc(data[i]))) {
        fail<MetricError>(where, "expected labels that are whole numbers, got ", data[i], " at position ", i);
      }
    }
  }
  return tensors::raw(labels.to(at::kLong));
}

std::int64_t count_labels(const at::Tensor& host_labels, std::int64_t num_classes,
                          std::optional<std::int64_t> ignore_index, const char* where) {
  const auto* data = host_labels.const_data_ptr<std::int64_t>();
  const std::int64_t size = host_labels.numel();
  const std::int64_t ignored = ignore_index.value_or(0);
  const bool ignores = ignore_index.has_value();
  const auto limit = static_cast<std::uint64_t>(num_classes);
  std::int64_t counted = 0;
  bool outside = false;
  for (std::int64_t i = 0; i < size; ++i) {
    const bool counts = !ignores || data[i] != ignored;
    counted += counts ? 1 : 0;
    outside |= counts & (static_cast<std::uint64_t>(data[i]) >= limit);
  }
  if (outside) [[unlikely]] {
    for (std::int64_t i = 0; i < size; ++i) {
      if ((!ignores || data[i] != ignored) && static_cast<std::uint64_t>(data[i]) >= limit) {
        refuse_label(where, num_classes, ignore_index, concat(data[i]), i);
      }
    }
  }
  return counted;
}

at::Tensor keep_rows(const at::Tensor& tensor, const std::uint8_t* keep, std::int64_t kept) {
  const at::Tensor whole = tensors::raw(tensor);
  std::vector<std::int64_t> shape = whole.sizes().vec();
  const std::int64_t rows = shape[0];
  shape[0] = kept;
  const at::Tensor out = at::detail::empty_cpu(shape, whole.scalar_type());
  const std::size_t row_bytes = whole.itemsize() * static_cast<std::size_t>(rows == 0 ? 0 : whole.numel() / rows);
  const auto* from = static_cast<const std::byte*>(whole.const_data_ptr());
  auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
  // Copies consecutive rows together.
  for (std::int64_t begin = 0; begin < rows;) {
    std::int64_t end = begin + 1;
    while (end < rows && keep[end] == keep[begin]) {
      ++end;
    }
    if (keep[begin] != 0) {
      const std::size_t bytes = row_bytes * static_cast<std::size_t>(end - begin);
      std::memcpy(to, from + static_cast<std::size_t>(begin) * row_bytes, bytes);
      to += bytes;
    }
    begin = end;
  }
  return out;
}

std::int64_t mark_complete_rows(const at::Tensor& rows, std::uint8_t* keep) {
  const at::Tensor data = tensors::raw(rows);
  switch (data.scalar_type()) {
    case at::kFloat:
      return mark_without_nan<float>(data, keep);
    case at::kDouble:
      return mark_without_nan<double>(data, keep);
    default:
      return mark_without_nan<float>(data.to(at::kFloat), keep);
  }
}

}  // namespace danling::inline v0::metrics::detail
