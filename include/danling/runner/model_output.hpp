// model_output: the tensor of a prediction of any type, for metrics and criteria that take tensors.
#pragma once

#include <array>
#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/core/error.hpp>
#include <danling/state/state.hpp>
#include <danling/tensors/detail/describe.hpp>
#include <danling/tensors/detail/entries.hpp>

namespace danling::inline v0 {

namespace detail {
void model_output() = delete;  // only argument-dependent lookup finds it, in the namespace of the user's type

template <class P>
concept FreeOutput = requires(const P& prediction) { model_output(prediction); };
template <class P>
concept MemberOutput = requires(const P& prediction) { prediction.output; };

[[noreturn]] void fail_output(const std::string& prediction);
/// Returns the entry "output" of a map, the first item of a list or tuple, or else the tree.
const State& output_of(const State& prediction);

struct ModelOutput {
  template <class P>
  decltype(auto) operator()(const P& prediction) const {
    if constexpr (FreeOutput<P>) {
      return model_output(prediction);
    } else if constexpr (MemberOutput<P>) {
      return (prediction.output);
    } else if constexpr (std::same_as<P, State>) {
      return output_of(prediction);
    } else if constexpr (NamedParts<P>) {
      const auto* found = entry_of(prediction, "output");
      if (found == nullptr) {
        fail_output(describe(prediction));
      }
      return (*found);
    } else if constexpr (ByPosition<P>) {
      return (std::get<0>(prediction));
    } else if constexpr (ByIndex<P>) {
      if (prediction.empty()) {
        fail_output(describe(prediction));
      }
      return (prediction[0]);
    } else {
      return (prediction);
    }
  }
};
}  // namespace detail

/// The tensor of a prediction, for metrics and criteria that take tensors. The first of: a free function
/// `model_output(prediction)` in the type's namespace, the member `output`, the entry "output" of a mapping, the first
/// part of a pair, tuple, list or vector, the prediction. @throws StateError when there is none
inline constexpr detail::ModelOutput model_output{};

/// A prediction for which `model_output` returns a tensor, or a State, which may hold one.
template <class P>
concept HasTensorOutput = requires(const P& prediction) {
  { model_output(prediction) } -> std::convertible_to<const at::Tensor&>;
} || requires(const P& prediction) {
  { model_output(prediction) } -> std::convertible_to<const State&>;
  requires std::same_as<std::remove_cvref_t<decltype(model_output(prediction))>, State>;
};

namespace detail {
/// @throws StateError for a State that is not a tensor
template <HasTensorOutput P>
decltype(auto) output_tensor(const P& prediction) {
  if constexpr (std::same_as<std::remove_cvref_t<decltype(danling::model_output(prediction))>, State>) {
    const State& output = danling::model_output(prediction);
    if (!output.is_tensor()) {
      fail_output(describe(prediction));
    }
    return at::Tensor(output.tensor());
  } else {
    return danling::model_output(prediction);
  }
}

/// Asserts that `P` is a prediction type, with one message per requirement. Returns true, for use in static_assert.
template <class P>
constexpr bool require_prediction() {
  static_assert(std::is_object_v<P> && !std::is_const_v<P>,
                "danling: a prediction is a value; name its type without const and &: BasicTorchRunner<Batch, Output>");
  static_assert(!std::is_object_v<P> || std::move_constructible<std::remove_cv_t<P>>,
                "danling: a prediction type must be movable, since steps return it");
  if constexpr (FreeOutput<P>) {
    static_assert(HasTensorOutput<P>,
                  "danling: model_output(prediction) must return the tensor for metrics and criteria");
  }
  return true;
}
}  // namespace detail

}  // namespace danling::inline v0
