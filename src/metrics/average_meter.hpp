// Parts of AverageMeter besides its numbers on the host.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include <danling/metrics/average_meter.hpp>

namespace danling::inline v0 {

/// Values of all ranks, in float64 on the device of the meter's sum.
struct AverageMeter::Ranks {
  at::Tensor batch_sum;
  at::Tensor sum;
  std::int64_t n = 0;
  std::int64_t count = 0;
};

struct AverageMeter::Extra {
  Extra() = default;
  // Copies tensors that are added to in place; the others are only ever replaced.
  Extra(const Extra& other)
      : last(other.last),
        last_n(other.last_n),
        last_is_sum(other.last_is_sum),
        sum(other.sum.defined() ? other.sum.clone() : other.sum),
        rest(other.rest.defined() ? other.rest.clone() : other.rest),
        count(other.count.defined() ? other.count.clone() : other.count),
        ranks(other.ranks) {}
  Extra& operator=(const Extra&) = delete;

  at::Tensor last;    // undefined when `value_` is the last
  at::Tensor last_n;  // undefined when `n_` is the last weight
  bool last_is_sum = false;
  at::Tensor sum;    // undefined while all values were numbers on the host; never without `ranks`
  at::Tensor rest;   // rounding error of the sum
  at::Tensor count;  // added to `count_`; undefined until a weight came from a device
  std::shared_ptr<const Ranks> ranks;
};

}  // namespace danling::inline v0
