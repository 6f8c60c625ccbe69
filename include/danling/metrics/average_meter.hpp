// A running average of numbers or of tensors of one shape.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include <danling/core/result.hpp>
#include <danling/distributed/group.hpp>
#include <danling/state/state.hpp>
#include <danling/tape/observer.hpp>

namespace danling::inline v0 {

class MetricValue;
namespace detail {
class MeterExchange;
struct MeterPart;
}  // namespace detail

/// Last value, weighted sum and weighted average (DanLing's AverageMeter).
///
/// Numbers and one-element tensors are scalars; other tensors are averaged element by element and must keep their shape
/// until `reset()`. Sums are float64 with compensation: 1e16, 1000 times 1, and -1e16 add up to 1000. A scalar on a
/// device stays there: `update` queues work and does not wait; reading the meter as a number waits. Never keeps an
/// autograd graph alive.
///
/// Reads are local to the rank. After `synchronize` they return the values of all ranks, until the next update, reset
/// or load of this meter; updates add to this rank's values only. Not thread-safe.
///
/// While the sums are exact, results have the same bits for any order of the updates and any number of ranks that share
/// them. N updates have exact sums if all addends `value * n` are multiples of some 2^k and at most 2^(k+105) / N^2:
/// 65 bits for a million updates. This holds for float32 values with n below 2^16 whose magnitudes differ by less than
/// 2^25, and for float64 values that differ by less than 2^12 (for a thousand updates, by 2^32). Beyond that, the error
/// of a sum is below its last bit, but this bit may differ if the exact sum lies almost midway between two numbers or
/// the values cancel. All nan count as the same number.
class AverageMeter {
 public:
  AverageMeter();
  ~AverageMeter();
  /// Copies are independent of their source.
  AverageMeter(const AverageMeter& other);
  AverageMeter& operator=(const AverageMeter& other);
  AverageMeter(AverageMeter&& other) noexcept;
  AverageMeter& operator=(AverageMeter&& other) noexcept;

  /// Records `value` as the mean of `n` items. With `n` = 0 it becomes the last value and enters no average.
  /// @throws MetricError when `n` is negative, when the weights' sum would pass 2^63 - 1, or when the meter holds
  /// tensors and `n` is not 0.
  void update(double value, std::int64_t n = 1) {
    if (tape::observer() != nullptr) [[unlikely]] {
      record_number(value, value * static_cast<double>(n), n);
      return;
    }
    update_number(value, n);
  }

  /// Records a tensor. Keeps a scalar on a device by reference until the next update: do not change it in place before.
  /// @throws MetricError also when the shape differs from that of earlier tensors, when a tensor with several elements
  /// follows scalars, and for complex, sparse, nested or undefined tensors.
  void update(const at::Tensor& value, std::int64_t n = 1);

  /// Adds `sum` over `n` items: `update(sum / n, n)` without its rounding. With `n` = 0 adds nothing and sets the last
  /// value to nan. @throws MetricError as `update`.
  void add(double sum, std::int64_t n) { record_number(n > 0 ? sum / static_cast<double>(n) : nan, sum, n); }
  /// Adds a scalar tensor. `n` may be an integer scalar on the device, not negative; where it is 0, `sum` must be 0.
  void add(const at::Tensor& sum, std::int64_t n);
  void add(const at::Tensor& sum, const at::Tensor& n);

  /// Records a metric's value for `n` samples: a mean has weight `n`, a sum its item count; an empty tensor counts as
  /// nan.
  void record(const MetricValue& value, std::int64_t n);

  // For batches computed in parts, such as the shards of a step. Without these calls each update is a batch. The parts
  // of a batch form one last value: their mean, weighted by n.
  /// The next update belongs to the same batch as the last one.
  void continue_batch();
  /// All updates until the next call belong to batch number `index`, such as a step; all ranks must use the same number
  /// for the same batch. If the ranks' last batches differ, `bat` reads the latest one. May be repeated between parts.
  /// @throws MetricError when `index` is negative.
  void begin_batch(std::int64_t index);

  /// Clears everything, the shape included.
  void reset();

  // As numbers; nan while the count is 0, except for the sum. Wait for the device of the values.
  // @throws MetricError when the meter holds tensors with several elements.
  /// The last value on this rank.
  double val() const {
    note_read();
    return extra_ != nullptr ? number_of(value_tensor(), "val") : count_ == 0 ? nan : value_;
  }

  // After `synchronize()` and until the next update: over all ranks; otherwise over this rank.
  /// The average of the last values, weighted by their n; nan if all n are 0.
  double bat() const {
    note_read();
    return extra_ != nullptr ? number_of(batch_tensor(), "bat") : n_ == 0 ? nan : val();
  }
  /// The weighted average.
  double avg() const {
    note_read();
    return extra_ != nullptr ? number_of(average_tensor(), "avg")
           : count_ == 0     ? nan
                             : own_number() / static_cast<double>(count_);
  }
  /// The weighted sum.
  double sum() const {
    note_read();
    return extra_ != nullptr ? number_of(sum_tensor(), "sum") : own_number();
  }
  /// The sum of the weights.
  std::int64_t count() const;
  /// The weight of the last value; after `synchronize()`, the sum of the weights of the ranks' last values.
  std::int64_t n() const;

  // The same values as a number, or as a list of the tensor's elements in row-major order. Wait for the device.
  Result::Value value() const;
  Result::Value batch() const;
  Result::Value average() const;
  Result::Value total() const;

  // The same values as float64 tensors on the device of the values, without waiting; scalars have no dimensions.
  at::Tensor value_tensor() const;
  at::Tensor batch_tensor() const;
  at::Tensor average_tensor() const;
  at::Tensor sum_tensor() const;

  /// Combines the ranks of `group`. Every rank must call it, also one without a value. Waits for the device. No effect
  /// in a world of one.
  /// @throws MetricError on all ranks when some hold scalars and others tensors, or tensors of different shapes.
  void synchronize(const Group& group);

  /// `0.9000 (0.8000)`: the last value on this rank and the average. Waits for the device.
  std::string text(int precision = 4) const;

  /// State of this rank: `value`, `n`, `sum`, `compensation` (rounding error of the sum), `count`; numbers, or float64
  /// tensors except `n` and `count`. After `begin_batch` also `batch_index`; if the last batch has several parts, also
  /// `batch` (`sum`, `compensation`, `parts`). Waits for the device.
  State state_dict() const;
  /// A later update on a device moves the sum there. A state without `compensation` loads as 0. @throws StateError when
  /// the state is not a meter's.
  void load_state_dict(const State& state);
  /// Merges the states of several ranks, given in any order. A rank that loads the result, while the others are reset,
  /// reads the values of all ranks, bit for bit while the sums are exact. Waits for devices.
  /// @throws StateError when a state is not a meter's, or when the states mix scalars and tensors or different shapes.
  static State merge_states(std::span<const State> states);

 protected:
  const tape::ObjectLifetime& lifetime() const { return lifetime_; }

 private:
  void update_number(double value, std::int64_t n) {
    // Also true for a negative weight, and for one that would overflow the count.
    if (extra_ != nullptr || static_cast<std::uint64_t>(n) > static_cast<std::uint64_t>(max_count - count_))
        [[unlikely]] {
      record_number(value, value * static_cast<double>(n), n);
      return;
    }
    value_ = value;
    n_ = n;
    if (n > 0) {
      accumulate(value * static_cast<double>(n));
      count_ += n;
    }
  }
  static void note_read() { tape::mark_unrecordable("the step reads a meter"); }
  friend class detail::MeterExchange;
  struct Batch;
  struct Extra;
  struct Ranks;
  static constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  static constexpr std::int64_t max_count = std::numeric_limits<std::int64_t>::max();

  // Knuth's two-sum: a sum and its rounding error, without a branch.
  void accumulate(double addend) {
    const double sum = sum_ + addend;
    const double rounded = sum - sum_;
    rest_ += (sum_ - (sum - rounded)) + (addend - rounded);
    sum_ = sum;
  }
  // If the sum is not finite, the rest is nan.
  double own_number() const { return std::isfinite(sum_) ? sum_ + rest_ : sum_; }

  void check_weight(std::int64_t n, const char* where) const;
  void check_scalar_fits(const at::Tensor& value, std::int64_t n) const;
  void observe_update(const at::Tensor& value, std::int64_t n);
  void record_number(double value, double addend, std::int64_t n);
  void record_tensor(const at::Tensor& last, bool is_sum, std::int64_t n);
  void update_elements(const at::Tensor& value, std::int64_t n);
  void use_tensors(const at::Tensor& like);
  Extra& extra();
  void begin_update();
  void fold_last(Batch& batch) const;
  Batch whole_batch() const;
  bool holds_tensors() const;
  const Ranks* ranks() const;
  at::Tensor last_tensor() const;
  detail::MeterPart own_part() const;
  void take(const detail::MeterPart& part);
  at::Tensor own_average() const;
  at::Tensor own_sum() const;
  std::int64_t own_count() const;
  std::int64_t own_n() const;
  static double number_of(const at::Tensor& tensor, const char* what);

  double value_ = 0.0;
  double sum_ = 0.0;
  double rest_ = 0.0;  // rounding error of the sum
  std::int64_t n_ = 0;
  std::int64_t count_ = 0;
  /// Absent for a meter of host numbers. Holds tensors (then the sum too), the earlier parts of the last batch, and the
  /// values of all ranks.
  std::unique_ptr<Extra> extra_;
  tape::ObjectLifetime lifetime_;
};

}  // namespace danling::inline v0
