#include <metrics/meter_part.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>

#include <danling/core/error.hpp>

#include <distributed/packing.hpp>
#include <metrics/compensated.hpp>
#include <metrics/exact_sum.hpp>
#include <metrics/scalar.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0::detail {
namespace {

void pack_tensor(Packer& packer, const at::Tensor& tensor) {
  const at::Tensor host = tensors::raw(tensor.to(at::kCPU, at::kDouble));
  packer.raw(host.const_data_ptr(), host.nbytes());
}

at::Tensor unpack_tensor(Unpacker& unpacker, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(at::kDouble));
  const auto bytes = unpacker.raw(tensor.nbytes());
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

// Exact sums by element of pairs of a sum and its rest. A sum that is not finite has no rest.
std::pair<at::Tensor, at::Tensor> exact_sums(const std::vector<std::pair<at::Tensor, at::Tensor>>& pairs) {
  std::vector<std::pair<at::Tensor, at::Tensor>> hosts;
  for (const auto& [sum, rest] : pairs) {
    hosts.emplace_back(tensors::raw(sum.to(at::kCPU, at::kDouble)), tensors::raw(rest.to(at::kCPU, at::kDouble)));
  }
  at::Tensor total = at::empty(hosts.front().first.sizes(), at::TensorOptions().dtype(at::kDouble));
  at::Tensor left = at::empty_like(total);
  auto* totals = total.mutable_data_ptr<double>();
  auto* lefts = left.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < total.numel(); ++i) {
    ExactSum exact;
    for (const auto& [sum, rest] : hosts) {
      const double value = sum.const_data_ptr<double>()[i];
      exact.add(value);
      if (std::isfinite(value)) {
        exact.add(rest.const_data_ptr<double>()[i]);
      }
    }
    std::tie(totals[i], lefts[i]) = exact.with_rest();
  }
  return {std::move(total), std::move(left)};
}

}  // namespace

std::string MeterPart::form() const {
  return !any() ? "" : sum.dim() == 0 ? "a scalar" : "a tensor of shape " + shape_text(sum.sizes());
}

void MeterPart::pack(Packer& packer) const {
  packer.number(std::int64_t{any()});
  if (any()) {
    packer.numbers(sum.sizes());
    packer.number(count);
    packer.number(index);
    packer.number(parts);
    packer.number(n);
    pack_tensor(packer, sum);
    pack_tensor(packer, rest);
    if (parts > 0) {
      pack_tensor(packer, batch_sum);
      // A sum of one part has no rest; a sum of several parts needs no mean.
      pack_tensor(packer, parts == 1 ? batch : batch_rest);
    }
  }
}

MeterPart MeterPart::unpack(Unpacker& unpacker) {
  MeterPart part;
  if (unpacker.number() != 0) {
    const std::vector<std::int64_t> shape = unpacker.numbers();
    part.count = unpacker.number();
    part.index = unpacker.number();
    part.parts = unpacker.number();
    part.n = unpacker.number();
    part.sum = unpack_tensor(unpacker, shape);
    part.rest = unpack_tensor(unpacker, shape);
    if (part.parts > 0) {
      part.batch_sum = unpack_tensor(unpacker, shape);
      (part.parts == 1 ? part.batch : part.batch_rest) = unpack_tensor(unpacker, shape);
      if (part.parts == 1) {
        part.batch_rest = at::zeros_like(part.batch_sum);
      }
    }
  }
  return part;
}

MeterPart combined(std::span<const MeterPart> parts) {
  MeterPart total;
  std::vector<std::pair<at::Tensor, at::Tensor>> sums;
  for (const MeterPart& part : parts) {
    if (part.any()) {
      total.count += part.count;
      total.index = std::max(total.index, part.index);
      sums.emplace_back(part.sum, part.rest);
    }
  }
  if (sums.empty()) {
    return total;
  }
  std::tie(total.sum, total.rest) = exact_sums(sums);
  std::vector<std::pair<at::Tensor, at::Tensor>> batches;
  for (const MeterPart& part : parts) {
    if (part.any() && part.index == total.index && part.parts > 0) {
      total.parts += part.parts;
      total.n += part.n;
      batches.emplace_back(part.batch_sum, part.batch_rest);
      total.batch = part.batch.defined() ? part.batch.to(at::kCPU, at::kDouble) : part.batch;
    }
  }
  if (batches.empty()) {
    total.batch = at::full_like(total.sum, std::numeric_limits<double>::quiet_NaN());
    return total;
  }
  std::tie(total.batch_sum, total.batch_rest) = exact_sums(batches);
  if (total.parts > 1) {
    total.batch = divided(total.batch_sum, total.n);
  }
  return total;
}

}  // namespace danling::inline v0::detail
