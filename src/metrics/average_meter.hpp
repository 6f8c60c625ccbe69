// What AverageMeter keeps besides its numbers on the host.
#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include <danling/metrics/average_meter.hpp>

namespace danling::inline v0 {

/// Of all ranks, in float64 where the meter's sum is.
struct AverageMeter::Ranks {
  at::Tensor batch_sum;
  at::Tensor sum;
  std::int64_t n = 0;
  std::int64_t count = 0;
};

struct AverageMeter::Extra {
  Extra() = default;
  // Those that are added to in place are this meter's own; the others are only ever replaced.
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
  at::Tensor sum;    // undefined while all that came was numbers on the host; never so without `ranks`
  at::Tensor rest;   // what rounding left out of it
  at::Tensor count;  // on top of `count_`; undefined while no weight came from a device
  std::shared_ptr<const Ranks> ranks;
};

}  // namespace danling::inline v0
