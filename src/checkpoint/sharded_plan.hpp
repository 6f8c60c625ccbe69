// The boxes of a sharded state that each rank writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/checkpoint/sharded.hpp>
#include <danling/formats/dcp_metadata.hpp>
#include <danling/formats/tensor_record.hpp>

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

/// A value that is no tensor, nor has tensors in it.
struct ShardValue {
  std::string name;
  std::vector<Key> path;
  formats::RecordTree value;
};

/// A state, taken apart.
struct SavePlan {
  std::vector<ShardItem> items;
  formats::RecordTree values;  ///< the tree, null in place of each tensor
};

/// @throws CheckpointError with the key of a tensor that cannot be written, of a place that does not fit its tensor or
/// has none, and of two values whose names are the same
SavePlan take_apart(const ShardedState& state);
/// The leaves of a tree without tensors; `tensors` has the names of its nulls that stand for one. Lists are leaves
/// unless they hold such a null.
std::vector<ShardValue> leaves_of_values(const formats::RecordTree& values, const std::vector<std::string>& tensors);

/// Names, types and boxes of a rank's tensors as bytes, for the other ranks.
std::string pack_items(const std::vector<ShardItem>& items);
/// The positions of the items that `rank` writes, from those of all ranks. Deterministic: equal on all ranks.
/// @throws CheckpointError, equal on all ranks, when the boxes of a tensor are not the whole, each element once
std::vector<std::size_t> assign_items(const std::vector<std::string>& packed, int rank);

/// A tree without tensors.
formats::RecordTree to_record_tree(const State& state);

}  // namespace danling::inline v0
