// Tensor identity: tied weights are one tensor under several names, and must stay one in a file.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace danling::inline v0 {

/// Storage, offset, sizes, strides, type and lazy bits: equal if two tensors are the same view of one storage.
using TensorIdentity =
    std::tuple<const void*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>, int, bool, bool>;

inline TensorIdentity identity_of(const at::Tensor& tensor) {
  return {
      tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec(), tensor.strides().vec(),
      static_cast<int>(tensor.scalar_type()),  tensor.is_conj(),        tensor.is_neg()};
}

}  // namespace danling::inline v0
