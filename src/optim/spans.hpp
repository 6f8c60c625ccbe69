// Update rules over many tensors at once, on LibTorch's threads.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <optim/rules/kernels.hpp>

namespace danling::inline v0::optim::detail {

/// Returns whether kernels exist for the dtype.
inline bool has_kernel(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
}
inline rules::Type kernel_type(at::ScalarType dtype) {
  return dtype == at::kDouble     ? rules::Type::float64
         : dtype == at::kBFloat16 ? rules::Type::bfloat16
         : dtype == at::kHalf     ? rules::Type::float16
                                  : rules::Type::float32;
}

/// Spans with their kernels, run together. Reused between updates to avoid allocations.
class SpanList {
 public:
  void clear();
  /// Stores constants and returns their index, for `add`.
  std::size_t add_constants(const double* values, std::size_t count);
  /// Adds a span; `run` sets `span.constants`.
  void add(rules::Kernel kernel, std::size_t constants, const rules::Span& span);
  /// Yields the same bits for any number of threads. Begins with the last span, whose gradient was read last.
  void run();

 private:
  struct Item {
    void (*update)(const rules::Span&);
    std::size_t constants;
    std::int64_t end;  // number of elements up to the end of this span
    rules::Span span;
  };
  void run_range(std::int64_t begin, std::int64_t end) const;

  std::vector<Item> items_;
  std::vector<double> constants_;
};

/// The sum of squares of all elements in float64, in an order independent of the number of threads. Not finite exactly
/// if an element is not (or if float64 squares overflow). For dense CPU tensors with `has_kernel` dtypes.
double sum_squares(const std::vector<at::Tensor>& tensors);

/// averages[i] += weight * (values[i] - averages[i]), in one pass, for dense CPU tensors of equal strides with
/// `has_kernel` dtypes; the two dtypes may differ.
void move_averages(const std::vector<at::Tensor>& averages, const std::vector<at::Tensor>& values, double weight);

}  // namespace danling::inline v0::optim::detail
