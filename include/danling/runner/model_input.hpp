// model_input and model_target: the input and target of a batch of any type.
#pragma once

#include <array>
#include <concepts>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/core/error.hpp>
#include <danling/state/state.hpp>
#include <danling/tensors/detail/entries.hpp>

namespace danling::inline v0 {

namespace detail {
// Only argument-dependent lookup finds these functions, in the namespace of the user's type.
void model_input() = delete;
void model_target() = delete;

template <class B>
concept FreeInput = requires(const B& batch) { model_input(batch); };
template <class B>
concept FreeTarget = requires(const B& batch) { model_target(batch); };
template <class B>
concept MemberInput = requires(const B& batch) { batch.input; };
template <class B>
concept MemberTarget = requires(const B& batch) { batch.target; };

[[noreturn]] void fail_input(const char* expected);

/// Returns the entry "input" of a map, the first item of a list or tuple, or else the tree.
const State& input_of(const State& batch);
/// Returns the entry "target" of a map, the second item of a list or tuple, or else null.
const State& target_of(const State& batch);

struct ModelInput {
  template <class B>
  decltype(auto) operator()(const B& batch) const {
    if constexpr (FreeInput<B>) {
      return model_input(batch);
    } else if constexpr (MemberInput<B>) {
      return (batch.input);
    } else if constexpr (std::same_as<B, State>) {
      return input_of(batch);
    } else if constexpr (NamedParts<B>) {
      const auto* found = entry_of(batch, "input");
      if (found == nullptr) {
        fail_input("an entry 'input'");
      }
      return (*found);
    } else if constexpr (ByPosition<B>) {
      return (std::get<0>(batch));
    } else if constexpr (ByIndex<B>) {
      if (batch.size() == 0) {
        fail_input("at least one part");
      }
      return (batch[0]);
    } else {
      return (batch);
    }
  }
};

struct ModelTarget {
  template <class B>
  decltype(auto) operator()(const B& batch) const {
    if constexpr (FreeTarget<B>) {
      return model_target(batch);
    } else if constexpr (MemberTarget<B>) {
      return (batch.target);
    } else if constexpr (std::same_as<B, State>) {
      return target_of(batch);
    } else if constexpr (NamedParts<B>) {
      using Entry = std::remove_cvref_t<decltype(*entry_of(batch, ""))>;
      const auto* found = entry_of(batch, "target");
      return found == nullptr ? Entry() : *found;
    } else if constexpr (ByPosition<B>) {
      if constexpr (std::tuple_size_v<B> >= 2) {
        return (std::get<1>(batch));
      } else {
        return at::Tensor();
      }
    } else if constexpr (ByIndex<B>) {
      using Part = std::remove_cvref_t<decltype(batch[0])>;
      return batch.size() < 2 ? Part() : batch[1];
    } else {
      return at::Tensor();
    }
  }
};
}  // namespace detail

/// The model's input from a batch. The first of: a free function `model_input(batch)` in the type's namespace, the
/// member `input`, the entry "input" of a mapping, the first part of a pair, tuple, list or vector, the batch. A State
/// that is a tensor counts as a tensor. @throws DataError when a mapping has no "input" or a vector is empty
inline constexpr detail::ModelInput model_input{};

/// A batch type that has, or may have, a target.
template <class B>
concept HasModelTarget =
    detail::FreeTarget<B> || detail::MemberTarget<B> || std::same_as<B, State> || detail::NamedParts<B> ||
    detail::ByIndex<B> || requires { requires std::tuple_size<B>::value >= 2; };

/// The criterion's target from a batch. The first of: a free function `model_target(batch)`, the member or entry
/// `target`, the second part; an undefined tensor if there is none.
inline constexpr detail::ModelTarget model_target{};

}  // namespace danling::inline v0
