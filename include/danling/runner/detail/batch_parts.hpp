// Target, counts and shapes that a runner reads from a batch of any type.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/data/batch_counts.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/runner/criterion.hpp>
#include <danling/runner/model_input.hpp>
#include <danling/state/state.hpp>
#include <danling/tensors/detail/describe.hpp>
#include <danling/tensors/detail/entries.hpp>
#include <danling/tensors/nested_tensor.hpp>

namespace danling::inline v0::detail {

template <class B>
using TargetOf = std::remove_cvref_t<decltype(danling::model_target(std::declval<const B&>()))>;

/// A batch whose target is a tensor, or a State that may hold one.
template <class B>
concept HasTensorTarget = HasModelTarget<B> && (std::same_as<TargetOf<B>, State> ||
                                                std::convertible_to<const TargetOf<B>&, const at::Tensor&>);

/// The target if it is a tensor, else an undefined tensor.
template <class B>
decltype(auto) target_tensor(const B& batch) {
  if constexpr (!HasTensorTarget<B>) {
    return at::Tensor();
  } else if constexpr (std::same_as<TargetOf<B>, State>) {
    const State& target = danling::model_target(batch);
    return target.is_tensor() ? target.tensor() : at::Tensor();
  } else {
    return danling::model_target(batch);
  }
}

/// The number of values in a nested target (it has no padding); empty for other targets.
inline std::optional<std::int64_t> nested_values(const at::Tensor& target) {
  return NestedTensor::is_nested(target) ? std::optional(target.numel()) : std::nullopt;
}

/// Loss normalizer of a batch. The first of, in DanLing's order: that of the batch or target, the number of targets
/// that the criterion averages over, the values of a nested target, the mask of the inputs.
template <class B>
std::optional<std::int64_t> normalizer_of(const B& batch, const CriterionHandle& criterion) {
  std::optional<std::int64_t> found = data::loss_normalizer(batch);
  if constexpr (HasModelTarget<B> && data::detail::Named<TargetOf<B>>) {
    found = found ? found : data::loss_normalizer(danling::model_target(batch));
  }
  if (!found && criterion.losses() != nullptr) {
    found = criterion.losses()->normalizer(target_tensor(batch));
    found = found ? found : nested_values(target_tensor(batch));
    return found ? found : data::batch_size(batch);  // the losses are means over samples
  }
  if constexpr (HasTensorTarget<B>) {
    found = found ? found : criterion.loss_normalizer(target_tensor(batch));
    found = found ? found : nested_values(target_tensor(batch));
  }
  if constexpr (data::detail::WithExtra<B>) {
    if (!found && !batch.extra.is_null()) {
      return data::detail::attention_count(batch.extra, /*wait=*/true);
    }
  } else if constexpr (data::detail::Named<B>) {
    const auto* inputs = entry_of(batch, "input");
    return found || inputs == nullptr ? found : data::detail::attention_count(*inputs, /*wait=*/true);
  }
  return found;
}

/// Tokens of a batch. The first of: its `num_tokens`, the elements of nested inputs (as in DanLing), the mask of the
/// inputs. 0 if there is none, or if a function computes the input.
template <class B>
std::int64_t tokens_of(const B& batch) {
  if (const std::optional<std::int64_t> stated = data::num_tokens(batch)) {
    return *stated;
  }
  if constexpr (FreeInput<B>) {
    return 0;  // computing the input may be expensive
  } else if constexpr (data::detail::WithExtra<B> && MemberInput<B>) {
    return batch.extra.is_null() ? data::detail::tokens_of_input(batch.input)
                                 : data::detail::tokens_of_input(batch.extra);
  } else if constexpr (std::same_as<B, State>) {
    const State* inputs = batch.is_map() ? entry_of(batch, "input") : item_of(batch, 0);
    return data::detail::tokens_of_input(inputs == nullptr ? batch : *inputs);
  } else if constexpr (data::detail::Named<B>) {
    const auto* inputs = entry_of(batch, "input");
    return inputs == nullptr ? 0 : data::detail::tokens_of_input(*inputs);
  } else if constexpr (!MemberInput<B> && !ByPosition<B> && ByIndex<B>) {
    return batch.size() == 0 ? 0 : data::detail::tokens_of_input(batch[0]);
  } else {
    return data::detail::tokens_of_input(danling::model_input(batch));
  }
}

/// "input Float [8, 4] and target Long [8]", for error texts.
template <class B>
std::string shapes_of(const B& batch) noexcept {
  try {
    std::string text = concat("input ", describe(danling::model_input(batch)));
    if constexpr (HasModelTarget<B>) {
      text += concat(" and target ", describe(danling::model_target(batch)));
    }
    return text;
  } catch (...) {
    return concat("a ", name_of(typeid(B)));
  }
}

}  // namespace danling::inline v0::detail
