// A running average of numbers or of tensors of one shape.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include <danling/core/result.hpp>
#include <danling/distributed/group.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// The last value, the weighted sum and the weighted average of what it was given (DanLing's AverageMeter).
///
/// Numbers and one-element tensors are scalars; other tensors are averaged element by element and must keep their
/// shape until `reset()`. Sums are float64. A scalar on a device stays there: `update` queues work and does not wait;
/// reading it as a number does. Nothing it keeps holds on to an autograd graph.
///
/// Reads are local to the rank. Not synchronised between threads.
class AverageMeter {
 public:
  AverageMeter();
  ~AverageMeter();
  /// Copies are independent of their source.
  AverageMeter(const AverageMeter& other);
  AverageMeter& operator=(const AverageMeter& other);
  AverageMeter(AverageMeter&& other) noexcept;
  AverageMeter& operator=(AverageMeter&& other) noexcept;

  /// Takes `value` as the mean of `n` items. With `n` = 0 it becomes the last value and enters no average.
  /// @throws MetricError when `n` is negative, or when the meter holds tensors and `n` is not 0.
  void update(double value, std::int64_t n = 1) {
    if (tensors_ != nullptr || n < 0) [[unlikely]] {
      record_number(value, value * static_cast<double>(n), n);
      return;
    }
    value_ = value;
    n_ = n;
    if (n > 0) {
      sum_ += value * static_cast<double>(n);
      count_ += n;
    }
  }

  /// The same for a tensor. A scalar on a device is kept by reference until the next update: do not change it in
  /// place before. @throws MetricError also when the shape is not that of the tensors before, when scalars came
  /// before a tensor with several elements, and for complex or undefined tensors.
  void update(const at::Tensor& value, std::int64_t n = 1);

  /// Takes `sum` over `n` items, as `update(sum / n, n)` without the rounding; nothing with `n` = 0, when nan becomes
  /// the last value. @throws MetricError as `update`.
  void add(double sum, std::int64_t n) { record_number(n > 0 ? sum / static_cast<double>(n) : nan, sum, n); }
  /// The same for a scalar tensor. `n` may be counted on the device too: an integer scalar, not negative, and with
  /// a sum of 0 where it is 0.
  void add(const at::Tensor& sum, std::int64_t n);
  void add(const at::Tensor& sum, const at::Tensor& n);

  /// Forgets everything, the shape included.
  void reset();

  // As numbers; nan while the count is 0, but for the sum. Wait for the device where the values are.
  // @throws MetricError when the meter holds tensors with several elements.
  /// The last value.
  double val() const { return tensors_ != nullptr ? number_of(value_tensor(), "val") : count_ == 0 ? nan : value_; }
  /// The value of this step over all ranks, as of the last `synchronize()`; in a world of one the last value.
  double bat() const { return val(); }
  /// The weighted average.
  double avg() const {
    return tensors_ != nullptr ? number_of(average_tensor(), "avg")
           : count_ == 0       ? nan
                               : sum_ / static_cast<double>(count_);
  }
  /// The weighted sum.
  double sum() const { return tensors_ != nullptr ? number_of(sum_tensor(), "sum") : sum_; }
  /// The sum of the weights.
  std::int64_t count() const;
  /// The weight of the last value.
  std::int64_t n() const;

  // As a number, or as the list of a tensor's elements in row-major order. Wait for the device.
  Result::Value value() const;
  Result::Value batch() const { return value(); }
  Result::Value average() const;
  Result::Value total() const;

  // As float64 tensors on the device where the values are, without waiting; scalars have no dimensions.
  at::Tensor value_tensor() const;
  at::Tensor average_tensor() const;
  at::Tensor sum_tensor() const;

  /// Combines the ranks, on all of which it must be called. A world of one has nothing to combine.
  void synchronize(const Group&) {}

  /// `0.9000 (0.8000)`: the last value and the average. Waits for the device.
  std::string text(int precision = 4) const;

  /// `value`, `n`, `sum`, `count`: numbers, or float64 tensors for `value` and `sum`. Waits for the device.
  State state_dict() const;
  /// A later update on a device moves the sum there. @throws StateError when the state is not a meter's.
  void load_state_dict(const State& state);

 private:
  struct Tensors;
  static constexpr double nan = std::numeric_limits<double>::quiet_NaN();

  void record_number(double value, double addend, std::int64_t n);
  void record_tensor(const at::Tensor& last, bool is_sum, std::int64_t n);
  void update_elements(const at::Tensor& value, std::int64_t n);
  void use_tensors(const at::Tensor& like);
  at::Tensor last_tensor() const;
  static double number_of(const at::Tensor& tensor, const char* what);

  double value_ = 0.0;
  double sum_ = 0.0;
  std::int64_t n_ = 0;
  std::int64_t count_ = 0;
  /// There from the first value on that is not a number on the host; the sum is then in there alone.
  std::unique_ptr<Tensors> tensors_;
};

}  // namespace danling::inline v0
