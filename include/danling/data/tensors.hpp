// Functions over the tensors of a tree, such as a batch's nested tensors.
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/state/state.hpp>

namespace danling::inline v0::data {

/// Calls `visit(const at::Tensor&)` for every tensor of a tree, in order.
template <class Visit>
void each_tensor(const State& tree, const Visit& visit) {
  if (tree.is_tensor()) {
    visit(tree.tensor());
  } else if (tree.is_list() || tree.is_tuple()) {
    for (const State& item : tree.items()) {
      each_tensor(item, visit);
    }
  } else if (tree.is_map()) {
    for (const auto& [key, item] : tree.map()) {
      each_tensor(item, visit);
    }
  }
}

/// Returns the tree with every tensor replaced by `change(at::Tensor)`; other values are unchanged.
template <class Change>
State map_tensors(const State& tree, const Change& change) {
  if (tree.is_tensor()) {
    return change(tree.tensor());
  }
  if (tree.is_list() || tree.is_tuple()) {
    State::List items;
    items.reserve(tree.items().size());
    for (const State& item : tree.items()) {
      items.push_back(map_tensors(item, change));
    }
    return tree.is_tuple() ? State(State::Tuple{std::move(items)}) : State(std::move(items));
  }
  if (tree.is_map()) {
    State::Map map;
    for (const auto& [key, item] : tree.map()) {
      map.set(key, map_tensors(item, change));
    }
    return map;
  }
  return tree;
}

/// Returns the tensor on `device`; itself if it is already there or undefined. `non_blocking` copies overlap with the
/// host only from pinned memory; copies to the host always wait, because the host could otherwise read incomplete data.
inline at::Tensor tensor_to(at::Tensor tensor, c10::Device device, bool non_blocking = true) {
  if (!tensor.defined() || tensor.device() == device) {
    return tensor;
  }
  return tensor.to(device, non_blocking && !device.is_cpu());
}

/// Returns the tensor in page-locked host memory; itself if it is already there, on a device, or undefined.
inline at::Tensor pinned(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() ? tensor.pin_memory() : tensor;
}

}  // namespace danling::inline v0::data
