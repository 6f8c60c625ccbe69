// Accumulation windows: the position of a micro-batch in its window, and the weights of micro-batches.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

#include <danling/core/error.hpp>

namespace danling::inline v0 {

/// The position of a micro-batch in its window, a value passed with it.
struct WindowPlace {
  std::int64_t index = 0;  ///< of the micro-batch in the window, from 0
  bool closes = true;      ///< the update follows: gradients must be complete on every rank
  double weight = 1.0;     ///< the gradient that its backward pass starts from; 0 excludes it
};

/// Weights of a batch, read before it is moved.
struct BatchCounts {
  /// Number of targets that its loss averages over: its weight in a window and in the average. Empty: uniform weights.
  std::optional<std::int64_t> loss_normalizer = {};
  /// For `tokens_per_s`; 0 if the batch does not count tokens.
  std::int64_t tokens = 0;

  /// The same for a batch of so many samples: the loss of an empty batch is no number and has weight 0.
  BatchCounts of_samples(std::int64_t samples) const {
    return {samples == 0 ? loss_normalizer.value_or(0) : loss_normalizer, tokens};
  }
};

/// Weights each micro-batch of a window by its loss normalizer (samples or valid tokens), so that the update equals
/// that of one batch with all samples. Without normalizers every micro-batch has the same weight. The first micro-batch
/// decides which of the two applies. A window of one micro-batch in one process is never rescaled.
class AccumulationWindow {
 public:
  /// Set to true when processes sum their gradients: all then use the same unit.
  void share(bool shared) { shared_ = shared; }

  /// Clears the window. Called after each update and when a loop begins.
  void reset() {
    kind_ = Kind::undecided;
    count_ = 0;
    unit_ = shared_ ? shared_unit : 1;  // also if no micro-batch of this process counts
    weight_ = 1.0;
    divisor_ = 0.0;
  }

  /// Called by the loop before each micro-batch. @param alone  the only micro-batch of its window
  /// @throws StateError when a weighted window receives a micro-batch without a normalizer; DataError for a negative
  /// one
  void begin_micro_batch(std::optional<std::int64_t> normalizer, bool alone) {
    detail::check<DataError>(normalizer.value_or(0) >= 0, "runner.accumulate",
                             "expected a loss_normalizer of at least 0, got ", normalizer.value_or(0));
    ++count_;
    if (normalizer && *normalizer == 0) {
      weight_ = 0.0;  // no valid target: must not train, whatever its loss
      return;
    }
    if ((alone && !shared_) || (kind_ == Kind::undecided && !normalizer)) {
      kind_ = Kind::uniform;
      unit_ = 1;
    } else if (kind_ == Kind::undecided) {
      kind_ = Kind::weighted;
    }
    if (kind_ == Kind::weighted) {
      detail::check<StateError>(
          normalizer.has_value(), "runner.accumulate",
          "expected a loss normalizer for every micro-batch of a window that began with one, got none; "
          "set a loss_normalizer in all batches or in none");
      if (divisor_ == 0.0 && !shared_) {
        unit_ = std::bit_floor(static_cast<std::uint64_t>(*normalizer));
      }
      weight_ = static_cast<double>(*normalizer) / static_cast<double>(unit_);
    } else {
      weight_ = 1.0;
    }
    divisor_ += weight_;
  }

  /// The gradient that the current micro-batch's backward pass starts from: its normalizer, in units of a power of two
  /// near the window's first one, so that a weight such as 70,000 fits into float16. 0 excludes the micro-batch.
  double weight() const { return weight_; }
  /// Called when the gradient's dtype cannot represent `weight()`: replaces it by `weight`, in the divisor too.
  void round_weight(double weight) {
    divisor_ += weight - weight_;
    weight_ = weight;
  }

  /// Micro-batches since the last reset().
  std::int64_t count() const { return count_; }

  /// The sum of the weights in samples or tokens (micro-batches, without normalizers), which is summed over ranks.
  double total() const { return divisor_ * static_cast<double>(unit_); }
  /// The unit of the weights of gradients that processes sum; 0 while no micro-batch counts.
  std::int64_t summed_unit() const {
    return shared_ && kind_ != Kind::undecided ? static_cast<std::int64_t>(unit_) : 0;
  }
  /// Called before the update, with the sum of total() over all ranks, and their unit if this rank has none.
  void set_total(double total, std::int64_t unit = 0) {
    unit_ = unit != 0 ? static_cast<std::uint64_t>(unit) : unit_;
    divisor_ = total / static_cast<double>(unit_);
  }
  /// The sum of the weights, by which the accumulated gradients must be divided; 0 if no micro-batch counts.
  double divisor() const { return divisor_; }

 private:
  enum class Kind { undecided, uniform, weighted };
  static constexpr std::uint64_t shared_unit = 1024;  // float16 represents 1/1024 and 60 million / 1024

  bool shared_ = false;
  Kind kind_ = Kind::undecided;
  std::int64_t count_ = 0;
  std::uint64_t unit_ = 1;
  double weight_ = 1.0;
  double divisor_ = 0.0;
};

}  // namespace danling::inline v0
