// Assigns the boxes of a sharded state to the ranks that write them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/checkpoint/sharded.hpp>
#include <danling/formats/detail/dcp_metadata.hpp>
#include <danling/formats/detail/tensor_record.hpp>

namespace danling::inline v0 {

/// A box of a tensor on this rank.
struct ShardItem {
  std::string name;
  std::vector<Key> path;
  std::vector<Key> python_path;  ///< with texts for all keys of maps
  at::Tensor tensor;
  formats::DType dtype = formats::DType::float32;
  ShardPlace place;
};

/// A value that neither is nor contains a tensor.
struct ShardValue {
  std::string name;
  std::vector<Key> path;
  formats::RecordTree value;
};

/// A state, split into tensors and values.
struct SavePlan {
  std::vector<ShardItem> items;
  formats::RecordTree values;  ///< the tree, null in place of each tensor
};

/// @throws CheckpointError with the key of a tensor that cannot be written, of a place that does not match its tensor
/// or has none, and of two values with the same name
SavePlan take_apart(const ShardedState& state);
/// The leaves of a tree without tensors; `tensors` has the names of the nulls that replace tensors. Lists are leaves
/// unless they contain such a null.
std::vector<ShardValue> leaves_of_values(const formats::RecordTree& values, const std::vector<std::string>& tensors);

/// Packs the names, dtypes and boxes of a rank's tensors for the other ranks.
std::string pack_items(const std::vector<ShardItem>& items);
/// The positions of the items that `rank` writes, from the items of all ranks. Deterministic: equal on all ranks.
/// @throws CheckpointError, equal on all ranks, unless the boxes of a tensor cover each element exactly once
std::vector<std::size_t> assign_items(const std::vector<std::string>& packed, int rank);

/// Converts a state without tensors to a tree.
formats::RecordTree to_record_tree(const State& state);

}  // namespace danling::inline v0
