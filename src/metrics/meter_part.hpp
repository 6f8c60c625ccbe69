// Contribution of one rank, or of its saved state, to a meter over all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

class Packer;
class Unpacker;

/// The sums of an AverageMeter, on any device. All tensors have one shape; they are undefined without values.
struct MeterPart {
  bool any() const { return sum.defined(); }
  /// `a scalar`, or the shape; empty without values.
  std::string form() const;

  void pack(Packer& packer) const;
  static MeterPart unpack(Unpacker& unpacker);

  std::int64_t count = 0;
  at::Tensor sum;
  at::Tensor rest;  // rounding error of the sum
  // Of the last batch:
  std::int64_t index = -1;  // number; -1 if none is given
  std::int64_t parts = 0;   // updates with a weight
  std::int64_t n = 0;
  at::Tensor batch_sum;
  at::Tensor batch_rest;
  at::Tensor batch;  // mean
};

/// Adds all parts, which must have one form, without rounding: the order does not matter. float64 on the host. The last
/// batch is that of the parts with the highest index.
MeterPart combined(std::span<const MeterPart> parts);

}  // namespace danling::inline v0::detail
