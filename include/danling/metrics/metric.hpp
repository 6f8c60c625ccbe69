// What a metric is: a function of one batch, and what it may answer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include <ATen/core/Tensor.h>

namespace danling::inline v0 {

/// What a metric says of one batch.
///
/// A number or a tensor is the batch's mean and is weighted by the batch size. A sum over `n` items weighs itself: it
/// is exact over batches also where parts of them do not count, and needs no wait where it was counted on a device.
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

  /// A sum over `n` items; tensors are scalars, `n` an integer one. See AverageMeter::add.
  static MetricValue sum(double sum, std::int64_t n) { return Value(Sum<double, std::int64_t>{sum, n}); }
  static MetricValue sum(at::Tensor sum, std::int64_t n) {
    return Value(Sum<at::Tensor, std::int64_t>{std::move(sum), n});
  }
  static MetricValue sum(at::Tensor sum, at::Tensor n) {
    return Value(Sum<at::Tensor, at::Tensor>{std::move(sum), std::move(n)});
  }

  const Value& get() const { return value_; }

  /// The batch's mean as a number, nan for a sum over nothing. Waits for the device.
  /// @throws MetricError when it is a tensor with several elements.
  double number() const;

 private:
  MetricValue(Value value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  Value value_;
};

/// A metric: what `target` says of `prediction`. Called without gradient recording.
using Metric = std::function<MetricValue(const at::Tensor& prediction, const at::Tensor& target)>;

/// What is done to a batch before the metrics see it.
using Preprocess = std::function<std::pair<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&)>;

struct PreprocessOptions {
  /// Labels of this value, and their predictions, are dropped.
  std::optional<std::int64_t> ignore_index = std::nullopt;
  /// Targets that are nan, and their predictions, are dropped.
  bool ignore_nan = false;
};

/// Drops what is to be ignored (a device wait, as the number of the rest is needed); where prediction and target have
/// as many elements, also drops dimensions of size one behind the first. DanLing's base_preprocess.
/// @throws MetricError when something is to be ignored and the prediction does not begin with the target's shape.
std::pair<at::Tensor, at::Tensor> base_preprocess(const at::Tensor& prediction, const at::Tensor& target,
                                                  const PreprocessOptions& options = {});

}  // namespace danling::inline v0
