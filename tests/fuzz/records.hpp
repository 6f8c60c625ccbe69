// Trees of records compared, as far as a file can tell them apart.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <danling/formats/detail/tensor_record.hpp>

namespace danling_fuzz {

/// Whether two trees are equal; `same_tensor` compares their tensors.
template <class SameTensor>
bool same(const danling::formats::RecordTree& a, const danling::formats::RecordTree& b, const SameTensor& same_tensor) {
  if (a.value().index() != b.value().index()) {
    return false;
  }
  if (a.is_map()) {
    auto other = b.map().begin();
    for (const auto& entry : a.map()) {
      if (other == b.map().end() || !(entry.key == other->key) || !same(entry.value, other->value, same_tensor)) {
        return false;
      }
      ++other;
    }
    return other == b.map().end();
  }
  if (a.is_list() || a.is_tuple()) {
    bool equal = a.items().size() == b.items().size();
    for (std::size_t i = 0; equal && i < a.items().size(); ++i) {
      equal = same(a.items()[i], b.items()[i], same_tensor);
    }
    return equal;
  }
  if (a.is_tensor()) {
    return same_tensor(a.tensor(), b.tensor());
  }
  if (a.is_double()) {
    return std::bit_cast<std::uint64_t>(a.number()) == std::bit_cast<std::uint64_t>(b.number());
  }
  return a.is_null() || (a.is_bool() && a.boolean() == b.boolean()) || (a.is_integer() && a.integer() == b.integer()) ||
         (a.is_string() && a.string() == b.string()) || (a.is_bytes() && a.bytes() == b.bytes());
}

/// Whether two records are equal but for the numbers of their storages.
inline bool same_view(const danling::formats::TensorRecord& a, danling::formats::TensorRecord b) {
  b.storage = a.storage;
  return a == b;
}

}  // namespace danling_fuzz
