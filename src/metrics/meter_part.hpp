// What one rank, or its saved state, contributes to a meter of all ranks.
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
  std::int64_t index = -1;  // its number; -1 if none was given
  std::int64_t parts = 0;   // its updates that have a weight
  std::int64_t n = 0;
  at::Tensor batch_sum;
  at::Tensor batch_rest;
  at::Tensor batch;  // its mean
};

/// The sums of all parts, which must agree in form, added without rounding: their order does not matter. float64 on the
/// host. The last batch is that of the parts with the highest index.
MeterPart combined(std::span<const MeterPart> parts);

}  // namespace danling::inline v0::detail
