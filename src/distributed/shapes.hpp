// Shapes of the ranks' tensors as a group carries them, and tensors as runs of bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <distributed/packing.hpp>

namespace danling::inline v0::detail {

/// Kind and shape of a tensor of one rank.
struct Shape {
  bool any = false;
  at::ScalarType type = at::kByte;
  std::vector<std::int64_t> sizes;
  bool stays = false;  ///< on a device whose memory travels without a copy

  std::int64_t bytes() const;
  /// Without the number of rows.
  std::string rows_text() const;
  at::Tensor make(at::Device device) const;
};

void pack_shape(Packer& packer, const at::Tensor& tensor, bool stays);
Shape unpack_shape(Unpacker& unpacker);

std::vector<std::int64_t> bytes_of(const std::vector<Shape>& shapes);
std::int64_t total(const std::vector<std::int64_t>& sizes);

/// Bytes on the host, or on a device.
at::Tensor bytes_tensor(std::int64_t size, at::Device device = at::kCPU);
/// The memory of a contiguous tensor.
at::Tensor as_bytes(const at::Tensor& tensor);
/// Numbers in memory as they are read: contiguous, neither conjugated nor negated by a flag.
at::Tensor plain_on(at::Device device, const at::Tensor& tensor);
/// `tensor` where a wire takes it: contiguous, and on the host unless it stays.
at::Tensor carried(const at::Tensor& tensor, bool stays);
/// All tensors of a list as one run of bytes.
at::Tensor pack_bytes(const std::vector<at::Tensor>& tensors, at::Device device);
/// The tensors of such a run, moved to `device`.
std::vector<at::Tensor> unpack_bytes(const at::Tensor& bytes, const std::vector<Shape>& shapes, at::Device device);

void check_root(std::string_view where, int root, int size);

}  // namespace danling::inline v0::detail
