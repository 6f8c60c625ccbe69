// Shapes of the ranks' tensors for exchange, and tensors as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <distributed/packing.hpp>

namespace danling::inline v0::detail {

/// Dtype and shape of one rank's tensor.
struct Shape {
  bool any = false;
  at::ScalarType type = at::kByte;
  std::vector<std::int64_t> sizes;
  bool stays = false;  ///< on a device whose memory is transferred without a copy

  std::int64_t bytes() const;
  /// Describes the rows without their number.
  std::string rows_text() const;
  at::Tensor make(at::Device device) const;
};

void pack_shape(Packer& packer, const at::Tensor& tensor, bool stays);
Shape unpack_shape(Unpacker& unpacker);

std::vector<std::int64_t> bytes_of(const std::vector<Shape>& shapes);
std::int64_t total(const std::vector<std::int64_t>& sizes);

/// Allocates bytes on the host or on a device.
at::Tensor bytes_tensor(std::int64_t size, at::Device device = at::kCPU);
/// Views the memory of a contiguous tensor as bytes.
at::Tensor as_bytes(const at::Tensor& tensor);
/// Returns a contiguous tensor with its values in memory: lazy conjugation and negation are applied.
at::Tensor plain_on(at::Device device, const at::Tensor& tensor);
/// Returns `tensor` in a form that the wire accepts: contiguous, and on the host unless it stays.
at::Tensor carried(const at::Tensor& tensor, bool stays);
/// Packs the bytes of all tensors into one tensor.
at::Tensor pack_bytes(const std::vector<at::Tensor>& tensors, at::Device device);
/// Unpacks tensors and moves them to `device`.
std::vector<at::Tensor> unpack_bytes(const at::Tensor& bytes, const std::vector<Shape>& shapes, at::Device device);

void check_root(std::string_view where, int root, int size);

}  // namespace danling::inline v0::detail
