// Data of AverageMeter beyond its numbers on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/metrics/average_meter.hpp>

namespace danling::inline v0 {

/// Values over all ranks, in float64 on the device of the meter's sum.
struct AverageMeter::Ranks {
  at::Tensor batch;
  at::Tensor sum;
  std::int64_t n = 0;
  std::int64_t count = 0;
};

/// The parts of the last batch before its last update, and the batch of the next update.
struct AverageMeter::Batch {
  Batch() = default;
  // Copies tensors that are added to in place, as Extra.
  Batch(const Batch& other)
      : index(other.index),
        next_index(other.next_index),
        continues(other.continues),
        divided(other.divided),
        parts(other.parts),
        n(other.n),
        n_on_device(other.n_on_device),
        first(other.first),
        number(other.number),
        sum(other.sum),
        rest(other.rest),
        sums(other.sums.defined() ? other.sums.clone() : other.sums),
        rests(other.rests.defined() ? other.rests.clone() : other.rests) {}
  Batch& operator=(const Batch&) = delete;

  /// Removes the parts.
  void clear();
  /// `pair`: the sum of all parts and its rounding error; `mean`: their mean. Need at least one part. Do not wait.
  std::pair<at::Tensor, at::Tensor> pair() const;
  at::Tensor mean() const;

  std::int64_t index = -1;       // number of the last batch; -1: none given
  std::int64_t next_index = -1;  // number of the next update's batch
  bool continues = false;        // the next update is a part of this batch
  bool divided = false;          // some batch had several parts
  // Over the parts with a weight:
  std::int64_t parts = 0;
  std::int64_t n = 0;
  at::Tensor n_on_device;  // added to `n`; undefined until a weight is on a device
  at::Tensor first;        // the value of the first part; undefined if `number` holds it
  double number = 0.0;
  // The sum of the parts that are numbers, and of those that are tensors; each with its rounding error.
  double sum = 0.0;
  double rest = 0.0;
  at::Tensor sums;
  at::Tensor rests;
};

struct AverageMeter::Extra {
  Extra() = default;
  // Copies tensors that are added to in place; others are only replaced.
  Extra(const Extra& other)
      : last(other.last),
        last_n(other.last_n),
        last_is_sum(other.last_is_sum),
        sum(other.sum.defined() ? other.sum.clone() : other.sum),
        rest(other.rest.defined() ? other.rest.clone() : other.rest),
        count(other.count.defined() ? other.count.clone() : other.count),
        batch(other.batch),
        ranks(other.ranks) {}
  Extra& operator=(const Extra&) = delete;

  at::Tensor last;    // undefined when `value_` is the last value
  at::Tensor last_n;  // undefined when `n_` is the last weight
  bool last_is_sum = false;
  at::Tensor sum;    // undefined while all values are numbers on the host
  at::Tensor rest;   // rounding error of the sum
  at::Tensor count;  // added to `count_`; undefined until a weight is on a device
  Batch batch;
  std::shared_ptr<const Ranks> ranks;
};

}  // namespace danling::inline v0
