// Parameter and return types of a forward function, deduced from its signature, and type-erased calls.
#pragma once

#include <concepts>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// The parameters of a member function, as values.
template <class F>
struct ParametersOf {};
template <class R, class C, class... A>
struct ParametersOf<R (C::*)(A...)> {
  using type = std::tuple<std::remove_cvref_t<A>...>;
};
template <class R, class C, class... A>
struct ParametersOf<R (C::*)(A...) const> : ParametersOf<R (C::*)(A...)> {};
template <class R, class C, class... A>
struct ParametersOf<R (C::*)(A...) noexcept> : ParametersOf<R (C::*)(A...)> {};
template <class R, class C, class... A>
struct ParametersOf<R (C::*)(A...) const noexcept> : ParametersOf<R (C::*)(A...)> {};

/// Signature of `forward`, or of a function object's call; absent if it is overloaded or a template.
template <class M>
struct ForwardOf {};
template <class M>
  requires requires { &M::forward; }
struct ForwardOf<M> : ParametersOf<decltype(&M::forward)> {
  static auto call(M& module, const auto&... inputs) -> decltype(module.forward(inputs...)) {
    return module.forward(inputs...);
  }
};
template <class M>
  requires(
      !requires { &M::forward; } && requires { &M::operator(); })
struct ForwardOf<M> : ParametersOf<decltype(&M::operator())> {
  static auto call(M& function, const auto&... inputs) -> decltype(function(inputs...)) { return function(inputs...); }
};
template <class M>
using Parameters = typename ForwardOf<M>::type;

/// A single input unchanged, several as a tuple.
template <class Inputs>
struct JoinedInputs {
  using type = Inputs;
};
template <class Input>
struct JoinedInputs<std::tuple<Input>> {
  using type = Input;
};

/// True for a tuple of tensors.
template <class Inputs>
inline constexpr bool tensors_only = false;
template <class... Inputs>
inline constexpr bool tensors_only<std::tuple<Inputs...>> = (std::same_as<Inputs, at::Tensor> && ...);

template <class T>
concept TensorLike = std::convertible_to<const T&, const at::Tensor&>;

/// Return type of `M` as a value, for inputs passed by const reference or value; types that convert to a tensor as
/// at::Tensor.
template <class M, class Inputs>
struct OutputOf {};
template <class M, class... Inputs>
  requires(sizeof...(Inputs) > 0 &&
           requires(M& module, const Inputs&... inputs) {
             requires std::is_object_v<std::remove_cvref_t<decltype(ForwardOf<M>::call(module, inputs...))>>;
           })
struct OutputOf<M, std::tuple<Inputs...>> {
  using Given = std::remove_cvref_t<decltype(ForwardOf<M>::call(std::declval<M&>(), std::declval<const Inputs&>()...))>;
  using type =
      std::conditional_t<std::convertible_to<Given, at::Tensor> && !std::same_as<Given, at::Tensor>, at::Tensor, Given>;
};

template <class M>
concept TypedForward = requires {
  typename Parameters<M>;
  typename OutputOf<M, Parameters<M>>::type;
};
template <class M>
using Output = typename OutputOf<M, Parameters<M>>::type;

/// A type-erased forward with its input and output types.
struct TypedCall {
  const std::type_info* input = nullptr;
  const std::type_info* output = nullptr;
  void (*function)() = nullptr;

  template <class Input>
  bool takes() const {
    return input != nullptr && *input == typeid(Input);
  }
  template <class Input, class Output>
  bool fits() const {
    return takes<Input>() && *output == typeid(Output);
  }
  /// Requires fits<Input, Output>().
  template <class Output>
  Output call(void* object, const void* value) const {
    return reinterpret_cast<Output (*)(void*, const void*)>(function)(object, value);
  }
};

template <class M>
TypedCall typed_call() {
  if constexpr (TypedForward<M>) {
    using Inputs = Parameters<M>;
    using Input = typename JoinedInputs<Inputs>::type;
    using Result = Output<M>;
    Result (*const function)(void*, const void*) = [](void* object, const void* input) -> Result {
      auto& module = *static_cast<M*>(object);
      if constexpr (std::same_as<Input, Inputs>) {
        return std::apply([&](const auto&... inputs) -> Result { return ForwardOf<M>::call(module, inputs...); },
                          *static_cast<const Inputs*>(input));
      } else {
        return ForwardOf<M>::call(module, *static_cast<const Input*>(input));
      }
    };
    return {&typeid(Input), &typeid(Result), reinterpret_cast<void (*)()>(function)};
  } else {
    return {};
  }
}

}  // namespace danling::inline v0::detail
