// Trees of records compared, as far as a file can tell them apart.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <danling/formats/pickle.hpp>

namespace danling_fuzz {

/// The number that a storage had in the tree from which the one at hand was written: its key.
inline std::size_t original_number(const danling::formats::PickledTree& pickled, std::size_t storage) {
  return std::stoul(pickled.storages[storage].key);
}

/// Whether `copy`, read from what was written of `tree`, is equal to it.
inline bool same(const danling::formats::RecordTree& tree, const danling::formats::RecordTree& copy,
                 const danling::formats::PickledTree& copied) {
  if (tree.value().index() != copy.value().index()) {
    return false;
  }
  if (tree.is_map()) {
    auto other = copy.map().begin();
    for (const auto& entry : tree.map()) {
      if (other == copy.map().end() || !(entry.key == other->key) || !same(entry.value, other->value, copied)) {
        return false;
      }
      ++other;
    }
    return other == copy.map().end();
  }
  if (tree.is_list() || tree.is_tuple()) {
    const auto& items = tree.items();
    const auto& others = copy.items();
    bool equal = items.size() == others.size();
    for (std::size_t i = 0; equal && i < items.size(); ++i) {
      equal = same(items[i], others[i], copied);
    }
    return equal;
  }
  if (tree.is_tensor()) {
    danling::formats::TensorRecord record = copy.tensor();
    record.storage = original_number(copied, record.storage);
    return record == tree.tensor();
  }
  if (tree.is_double()) {
    return std::bit_cast<std::uint64_t>(tree.number()) == std::bit_cast<std::uint64_t>(copy.number());
  }
  return tree.is_null() || (tree.is_bool() && tree.boolean() == copy.boolean()) ||
         (tree.is_integer() && tree.integer() == copy.integer()) ||
         (tree.is_string() && tree.string() == copy.string()) || (tree.is_bytes() && tree.bytes() == copy.bytes());
}

}  // namespace danling_fuzz
