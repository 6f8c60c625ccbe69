// What a forward function takes besides tensors, read from its signature, and how to call it with that.
#pragma once

#include <concepts>
#include <string>
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

/// Of `forward`, or of a function object's call; missing where it is overloaded or a template.
template <class M>
struct ForwardOf {};
template <class M>
requires requires { &M::forward; }
struct ForwardOf<M> : ParametersOf<decltype(&M::forward)> {
  static decltype(auto) call(M& module, const auto&... inputs) { return module.forward(inputs...); }
};
template <class M>
requires(
    !requires { &M::forward; } && requires { &M::operator(); }) struct ForwardOf<M>
    : ParametersOf<decltype(&M::operator())> {
  static decltype(auto) call(M& function, const auto&... inputs) { return function(inputs...); }
};
template <class M>
using Parameters = typename ForwardOf<M>::type;

/// One input as it is, several as a tuple.
template <class Inputs>
struct JoinedInputs {
  using type = Inputs;
};
template <class Input>
struct JoinedInputs<std::tuple<Input>> {
  using type = Input;
};

/// A tuple of tensors.
template <class Inputs>
inline constexpr bool tensors_only = false;
template <class... Inputs>
inline constexpr bool tensors_only<std::tuple<Inputs...>> = (std::same_as<Inputs, at::Tensor> && ...);

/// Whether `M` takes these inputs, by reference to const or by value, and gives a tensor.
template <class M, class Inputs>
inline constexpr bool takes_inputs = false;
template <class M, class... Inputs>
inline constexpr bool takes_inputs<M, std::tuple<Inputs...>> = sizeof...(Inputs) > 0 &&
                                                               requires(M& module, const Inputs&... inputs) {
  { ForwardOf<M>::call(module, inputs...) } -> std::convertible_to<at::Tensor>;
};

template <class M>
concept TypedForward = requires {
  typename Parameters<M>;
  requires takes_inputs<M, Parameters<M>>;
};

/// A forward whose input has lost its type, and which type that is.
struct TypedCall {
  const std::type_info* type = nullptr;
  at::Tensor (*call)(void* object, const void* input) = nullptr;
};

template <class M>
TypedCall typed_call() {
  if constexpr (TypedForward<M>) {
    using Inputs = Parameters<M>;
    using Input = typename JoinedInputs<Inputs>::type;
    return {&typeid(Input), [](void* object, const void* input) -> at::Tensor {
              auto& module = *static_cast<M*>(object);
              if constexpr (std::same_as<Input, Inputs>) {
                return std::apply([&](const auto&... inputs) { return ForwardOf<M>::call(module, inputs...); },
                                  *static_cast<const Inputs*>(input));
              } else {
                return ForwardOf<M>::call(module, *static_cast<const Input*>(input));
              }
            }};
  } else {
    return {};
  }
}

/// A type's name as it stands in source code.
std::string name_of(const std::type_info& type);

}  // namespace danling::inline v0::detail
