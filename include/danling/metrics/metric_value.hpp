// Value of a metric for one batch or for all data.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>

#include <ATen/core/Tensor.h>

namespace danling::inline v0 {

/// Value of a metric for one batch.
///
/// A number or a tensor is the mean of the batch, weighted by the batch size. A sum over `n` items has weight `n`: it
/// is exact over batches even if some items do not count, and a count on a device needs no wait.
class MetricValue {
 public:
  template <class S, class N>
  struct Sum {
    S sum;
    N n;
  };
  using Value = std::variant<double, at::Tensor, Sum<double, std::int64_t>, Sum<at::Tensor, std::int64_t>,
                             Sum<at::Tensor, at::Tensor>>;

  MetricValue(double value) : value_(value) {}                 // NOLINT(google-explicit-constructor)
  MetricValue(at::Tensor value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  /// A sum over `n` items. Tensors must be scalars, `n` an integer. See AverageMeter::add.
  static MetricValue sum(double sum, std::int64_t n) { return Value(Sum<double, std::int64_t>{sum, n}); }
  static MetricValue sum(at::Tensor sum, std::int64_t n) {
    return Value(Sum<at::Tensor, std::int64_t>{std::move(sum), n});
  }
  static MetricValue sum(at::Tensor sum, at::Tensor n) {
    return Value(Sum<at::Tensor, at::Tensor>{std::move(sum), std::move(n)});
  }
  /// One value per sample, stored as their sum and number. @throws MetricError for an undefined or complex tensor.
  static MetricValue per_sample(const at::Tensor& values);

  const Value& get() const { return value_; }

  /// The mean as a number; nan for a sum over no items. Waits for the device.
  /// @throws MetricError when it is a tensor with several elements.
  double number() const;
  /// The mean as a tensor, float64 for a number or a sum. Does not wait.
  at::Tensor tensor() const;

 private:
  MetricValue(Value value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  Value value_;
};

}  // namespace danling::inline v0
