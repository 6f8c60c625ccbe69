// NestedTensors in files: maps of plain tensors, which any reader of the format understands.
#pragma once

#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Returns the state with each NestedTensor as a map of tensors: `values` (rows, static sizes...), `offsets` (int64
/// [batch + 1], the first row of each element), `shapes` (int64 [batch, rank]), `nested_tensor` (int64 [4 + n]: version
/// 1, batch-first flag, mask value of padding, number n of ragged dimensions, these dimensions), and `padding_value`
/// (float64). Returns the state itself if it has none.
State encode_nested(const State& state);

/// The inverse. `state` may also hold these tensors under joined names ("x.values"), as safetensors files do.
/// @throws CheckpointError when such a map contradicts itself
State decode_nested(State state);

}  // namespace danling::inline v0
