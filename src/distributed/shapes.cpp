#include <distributed/shapes.hpp>

#include <numeric>

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {

std::int64_t Shape::bytes() const {
  std::int64_t count = any ? static_cast<std::int64_t>(c10::elementSize(type)) : 0;
  for (const std::int64_t size : sizes) {
    count *= size;
  }
  return count;
}

std::string Shape::rows_text() const {
  if (!any || sizes.empty()) {
    return any ? "a scalar" : "";
  }
  return concat(c10::toString(type), " rows of shape [",
                join(std::vector<std::int64_t>(sizes.begin() + 1, sizes.end())), "]");
}

at::Tensor Shape::make(at::Device device) const {
  return at::empty(sizes, at::TensorOptions().dtype(type).device(device));
}

void pack_shape(detail::Packer& packer, const at::Tensor& tensor, bool stays) {
  packer.number(std::int64_t{tensor.defined()});
  if (tensor.defined()) {
    packer.number(static_cast<std::int64_t>(tensor.scalar_type()));
    packer.numbers(tensor.sizes());
    packer.number(std::int64_t{stays});
  }
}

Shape unpack_shape(detail::Unpacker& unpacker) {
  Shape shape;
  shape.any = unpacker.number() != 0;
  if (shape.any) {
    shape.type = static_cast<at::ScalarType>(unpacker.number());
    shape.sizes = unpacker.numbers();
    shape.stays = unpacker.number() != 0;
  }
  return shape;
}

at::Tensor bytes_tensor(std::int64_t size, at::Device device) {
  return at::empty({size}, at::TensorOptions().dtype(at::kByte).device(device));
}

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

at::Tensor plain_on(at::Device device, const at::Tensor& tensor) {
  return tensor.detach().to(device).resolve_conj().resolve_neg().contiguous();
}

at::Tensor carried(const at::Tensor& tensor, bool stays) {
  return plain_on(stays ? tensor.device() : at::Device(at::kCPU), tensor);
}

/// Packs the bytes of all tensors into one tensor.
at::Tensor pack_bytes(const std::vector<at::Tensor>& tensors, at::Device device) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    count += tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
  }
  at::Tensor bytes = bytes_tensor(count, device);
  std::int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.numel() > 0) {
      const auto size = static_cast<std::int64_t>(tensor.nbytes());
      bytes.narrow(0, at, size).copy_(as_bytes(plain_on(device, tensor)));
      at += size;
    }
  }
  return bytes;
}

/// Unpacks tensors, each to its device.
std::vector<at::Tensor> unpack_bytes(const at::Tensor& bytes, const std::vector<Shape>& shapes, at::Device device) {
  std::vector<at::Tensor> tensors;
  std::int64_t at = 0;
  for (const Shape& shape : shapes) {
    if (!shape.any) {
      tensors.emplace_back();
      continue;
    }
    const at::Tensor tensor = shape.make(bytes.device());
    if (shape.bytes() > 0) {
      as_bytes(tensor).copy_(bytes.narrow(0, at, shape.bytes()));
      at += shape.bytes();
    }
    tensors.push_back(tensor.to(device));
  }
  return tensors;
}

std::vector<std::int64_t> bytes_of(const std::vector<Shape>& shapes) {
  std::vector<std::int64_t> sizes;
  for (const Shape& shape : shapes) {
    sizes.push_back(shape.bytes());
  }
  return sizes;
}

std::int64_t total(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

void check_root(std::string_view where, int root, int size) {
  check<DistributedError>(root >= 0 && root < size, where, "expected a root of 0 to ", size - 1, ", got ", root);
}

}  // namespace danling::inline v0::detail
