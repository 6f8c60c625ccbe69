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
/// Numbers and one-element tensors are scalars; other tensors are averaged element by element and must keep their
/// shape until `reset()`. Sums are float64 with compensation: 1e16, 1000 times 1, and -1e16 add up to 1000. A scalar on
/// a device stays there: `update` queues work and does not wait; reading it as a number does. Never keeps an autograd
/// graph alive.
///
/// Reads are local to the rank. After `synchronize` they return the values of all ranks, until the next update, reset
/// or load of this meter; updates add to this rank's values only. Not synchronised between threads.
///
/// Results have the same bits for any order of the same updates, and any number of ranks that share them, as long as
/// the sums are exact. They are for N updates whose addends `value * n` are multiples of some 2^k and at most
/// 2^(k+105) / N^2: with a million updates, 65 bits. That holds for float32 values with n below 2^16 whose magnitudes
/// differ by less than 2^25, and for float64 values that differ by less than 2^12 (with a thousand updates, by 2^32).
/// Beyond that, a sum is still closer than its last bit, which may differ where the exact sum lies almost in the middle
/// of two numbers or the values cancel. All nan count as the same number.
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

  /// The same for a tensor. A scalar on a device is kept by reference until the next update: do not change it in
  /// place before. @throws MetricError also when the shape differs from that of earlier tensors, when scalars came
  /// before a tensor with several elements, and for complex, sparse, nested or undefined tensors.
  void update(const at::Tensor& value, std::int64_t n = 1);

  /// Adds `sum` over `n` items, as `update(sum / n, n)` without the rounding; with `n` = 0 adds nothing, and nan
  /// becomes the last value. @throws MetricError as `update`.
  void add(double sum, std::int64_t n) { record_number(n > 0 ? sum / static_cast<double>(n) : nan, sum, n); }
  /// The same for a scalar tensor. `n` may be a tensor on the device too: an integer scalar, not negative, and with
  /// a sum of 0 where it is 0.
  void add(const at::Tensor& sum, std::int64_t n);
  void add(const at::Tensor& sum, const at::Tensor& n);

  /// Records a metric's value for `n` samples: a mean has weight `n`, a sum its item count, an empty tensor counts as
  /// nan.
  void record(const MetricValue& value, std::int64_t n);

  // Batches that are computed in parts, such as the shards of one step. Without these calls each update is a batch.
  // All parts of a batch form one last value: the mean of the values, weighted by n.
  /// The next update belongs to the same batch as the last one.
  void continue_batch();
  /// All updates until the next call belong to the batch with this number, such as a step, that all ranks give to the
  /// same batch: of ranks with other last batches, `bat` then reads the latest one. May be repeated between parts.
  /// @throws MetricError when `index` is negative.
  void begin_batch(std::int64_t index);

  /// Clears everything, the shape included.
  void reset();

  // As numbers; nan while the count is 0, except the sum. Wait for the device of the values.
  // @throws MetricError when the meter holds tensors with several elements.
  /// The last value on this rank.
  double val() const {
    note_read();
    return extra_ != nullptr ? number_of(value_tensor(), "val") : count_ == 0 ? nan : value_;
  }

  // Of all ranks from `synchronize()` to the next update, else of this rank.
  /// The average of the last values, weighted by their n; nan if these are 0.
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
  /// The weight of the last value, or the sum of those of the ranks' last values.
  std::int64_t n() const;

  // The same as a number, or as the list of a tensor's elements in row-major order. Wait for the device.
  Result::Value value() const;
  Result::Value batch() const;
  Result::Value average() const;
  Result::Value total() const;

  // As float64 tensors on the device of the values, without waiting; scalars have no dimensions.
  at::Tensor value_tensor() const;
  at::Tensor batch_tensor() const;
  at::Tensor average_tensor() const;
  at::Tensor sum_tensor() const;

  /// Combines the ranks of `group`, on all of which it must be called; those without a value join too. Waits for the
  /// device. No effect in a world of one.
  /// @throws MetricError on all ranks when some hold scalars and others tensors, or tensors of different shapes.
  void synchronize(const Group& group);

  /// `0.9000 (0.8000)`: the last value on this rank and the average. Waits for the device.
  std::string text(int precision = 4) const;

  /// State of this rank: `value`, `n`, `sum`, `compensation` (rounding error of the sum), `count`: numbers, or float64
  /// tensors except `n` and `count`. With `batch_index` after `begin_batch`, and `batch` (`sum`, `compensation`,
  /// `parts`) if the last batch has several parts. Waits for the device.
  State state_dict() const;
  /// A later update on a device moves the sum there. States without a compensation have none. @throws StateError when
  /// the state is not a meter's.
  void load_state_dict(const State& state);
  /// One state for those of several ranks, in any order: a rank that loads it, while the others are reset, reads the
  /// same as all ranks before, bit for bit as long as the sums are exact. Waits for devices.
  /// @throws StateError when a state is not a meter's, or some are of scalars and others of tensors, or of other
  /// shapes.
  static State merge_states(std::span<const State> states);

 protected:
  const tape::Life& life() const { return life_; }

 private:
  void update_number(double value, std::int64_t n) {
    // Negative weights, and those with which the count would overflow.
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
  static void note_read() { tape::refuse("the step reads a meter"); }
  friend class detail::MeterExchange;
  struct Batch;
  struct Extra;
  struct Ranks;
  static constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  static constexpr std::int64_t max_count = std::numeric_limits<std::int64_t>::max();

  // Knuth's sum of two numbers and its rounding error, without a branch.
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
  /// What a meter of host numbers does not need: tensors, which then hold the sum, the earlier parts of the last batch,
  /// and the values of all ranks.
  std::unique_ptr<Extra> extra_;
  tape::Life life_;
};

}  // namespace danling::inline v0
