// Converts a batch of any type to a State, for writing it to a file.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include <ATen/core/Tensor.h>

#include <danling/data/batch.hpp>
#include <danling/state/state.hpp>
#include <danling/tensors/detail/containers.hpp>

namespace danling::inline v0::detail {

inline State state_of_tensor(const at::Tensor& tensor) { return tensor.defined() ? State(tensor.detach()) : State(); }

/// Shares the tensors. Returns null for a type without `state_dict()` that is not a Batch, tensor, State, number, text
/// or a container of them.
template <class B>
State state_of(const B& batch) {
  if constexpr (std::same_as<B, at::Tensor>) {
    return state_of_tensor(batch);
  } else if constexpr (std::same_as<B, State> || std::same_as<B, std::string>) {
    return State(batch);
  } else if constexpr (std::same_as<B, data::Batch>) {
    State out;
    out["input"] = state_of_tensor(batch.input);
    out["target"] = state_of_tensor(batch.target);
    out["extra"] = batch.extra;
    return out;
  } else if constexpr (requires {
                         { batch.state_dict() } -> std::convertible_to<State>;
                       }) {
    return batch.state_dict();
  } else if constexpr (std::same_as<B, bool>) {
    return State(batch);
  } else if constexpr (std::is_integral_v<B>) {
    return State(static_cast<std::int64_t>(batch));
  } else if constexpr (std::is_floating_point_v<B>) {
    return State(static_cast<double>(batch));
  } else if constexpr (Mapping<B>) {
    State::Map out;
    for (const auto& [key, value] : batch) {
      if constexpr (std::is_integral_v<typename B::key_type>) {
        out.set(static_cast<std::int64_t>(key), state_of(value));
      } else if constexpr (std::convertible_to<const typename B::key_type&, std::string>) {
        out.set(std::string(key), state_of(value));
      }
    }
    return out;
  } else if constexpr (Container<B>) {
    State::List out;
    each_part(batch, [&](const auto& part) { out.push_back(state_of(part)); });
    return out;
  } else {
    return {};
  }
}

}  // namespace danling::inline v0::detail
