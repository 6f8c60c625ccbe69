// Counts that a batch provides: its loss normalizer and its number of tokens, in mappings under DanLing's names.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include <ATen/core/Tensor.h>

#include <danling/state/state.hpp>
#include <danling/tensors/batch_size.hpp>
#include <danling/tensors/detail/entries.hpp>
#include <danling/tensors/nested_tensor.hpp>

namespace danling::inline v0::data {

namespace detail {
using danling::detail::BuiltIn;
using danling::detail::entry_of;
using danling::detail::NamedParts;
using danling::detail::Plain;

// Found only by argument-dependent lookup, in the namespace of the user's type.
void loss_normalizer() = delete;
void num_tokens() = delete;

template <class B>
concept MemberNormalizerCall = !BuiltIn<B> && requires(const B& batch) {
  { batch.loss_normalizer() } -> std::convertible_to<std::optional<std::int64_t>>;
};
template <class B>
concept MemberNormalizer = !BuiltIn<B> && requires(const B& batch) {
  { batch.loss_normalizer } -> std::convertible_to<std::optional<std::int64_t>>;
};
template <class B>
concept FreeNormalizer = !BuiltIn<B> && requires(const B& batch) {
  { loss_normalizer(batch) } -> std::convertible_to<std::optional<std::int64_t>>;
};
template <class B>
concept MemberTokensCall = !BuiltIn<B> && requires(const B& batch) {
  { batch.num_tokens() } -> std::convertible_to<std::optional<std::int64_t>>;
};
template <class B>
concept MemberTokens = !BuiltIn<B> && requires(const B& batch) {
  { batch.num_tokens } -> std::convertible_to<std::optional<std::int64_t>>;
};
template <class B>
concept FreeTokens = !BuiltIn<B> && requires(const B& batch) {
  { num_tokens(batch) } -> std::convertible_to<std::optional<std::int64_t>>;
};
/// A batch with a mapping `extra` in addition to its members.
template <class B>
concept WithExtra = requires(const B& batch) {
  { batch.extra } -> std::same_as<const State&>;
};
template <class B>
concept Named = std::same_as<B, State> || NamedParts<B>;

/// DanLing's names in order of precedence, as keys of trees and of containers; all except the first count tokens.
struct CountName {
  Key key;
  std::string text;
};
std::span<const CountName> normalizer_names();
std::span<const CountName> token_names();

/// Returns an integer if the value is a number or a tensor of one element. With `wait`, waits for a tensor on a device;
/// otherwise skips it.
std::optional<std::int64_t> as_count(const at::Tensor& value, bool wait);
std::optional<std::int64_t> as_count(const State& value, bool wait);
template <class T>
std::optional<std::int64_t> as_count(const T& value, bool wait) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (requires { value.has_value(); }) {
    return value ? as_count(*value, wait) : std::nullopt;
  } else {
    return std::nullopt;
  }
}

/// Returns the first of `names` that has a count in the mapping.
template <Named B>
std::optional<std::int64_t> find_count(const B& mapping, std::span<const CountName> names, bool wait) {
  for (const CountName& name : names) {
    const auto* found = [&] {
      if constexpr (std::same_as<B, State>) {
        return entry_of(mapping, name.key);
      } else {
        return entry_of(mapping, name.text);
      }
    }();
    if (found != nullptr) {
      if (const auto count = as_count(*found, wait)) {
        return count;
      }
    }
  }
  return std::nullopt;
}

/// Sums the tensor `attention_mask` of a mapping of inputs.
std::optional<std::int64_t> sum_of_mask(const at::Tensor& mask, bool wait);
std::optional<std::int64_t> sum_of_mask(const State& mask, bool wait);
template <class B>
std::optional<std::int64_t> attention_count(const B& inputs, bool wait) {
  if constexpr (Named<B>) {
    const auto* found = entry_of(inputs, "attention_mask");
    if constexpr (requires { sum_of_mask(*found, wait); }) {
      return found == nullptr ? std::nullopt : sum_of_mask(*found, wait);
    }
  }
  return std::nullopt;
}

extern template std::optional<std::int64_t> find_count(const State&, std::span<const CountName>, bool);
extern template std::optional<std::int64_t> attention_count(const State&, bool);

struct LossNormalizer {
  template <class B>
  std::optional<std::int64_t> operator()(const B& batch) const {
    if constexpr (FreeNormalizer<B>) {
      return loss_normalizer(batch);
    } else if constexpr (MemberNormalizerCall<B>) {
      return batch.loss_normalizer();
    } else if constexpr (MemberNormalizer<B> && WithExtra<B>) {
      return batch.loss_normalizer || batch.extra.is_null() ? batch.loss_normalizer
                                                            : find_count(batch.extra, normalizer_names(), true);
    } else if constexpr (MemberNormalizer<B>) {
      return batch.loss_normalizer;
    } else if constexpr (Named<B>) {
      return find_count(batch, normalizer_names(), true);
    } else {
      return std::nullopt;
    }
  }
};

/// Returns 0 for other tensors.
inline std::int64_t nested_elements(const at::Tensor& input) {
  return input.defined() && (input.is_nested() || NestedTensor::is_nested(input)) ? input.numel() : 0;
}
template <class I>
std::int64_t tokens_of_input(const I& input) {
  if constexpr (std::same_as<I, State>) {
    return input.is_tensor() ? nested_elements(input.tensor()) : attention_count(input, false).value_or(0);
  } else if constexpr (std::convertible_to<const I&, const at::Tensor&>) {
    return nested_elements(input);
  } else {
    return attention_count(input, false).value_or(0);
  }
}

struct NumTokens {
  template <class B>
  std::optional<std::int64_t> operator()(const B& batch) const {
    if constexpr (FreeTokens<B>) {
      return num_tokens(batch);
    } else if constexpr (MemberTokensCall<B>) {
      return batch.num_tokens();
    } else if constexpr (MemberTokens<B> && WithExtra<B>) {
      return batch.num_tokens || batch.extra.is_null() ? batch.num_tokens
                                                       : find_count(batch.extra, token_names(), false);
    } else if constexpr (MemberTokens<B>) {
      return batch.num_tokens;
    } else if constexpr (Named<B>) {
      return find_count(batch, token_names(), false);
    } else {
      return std::nullopt;
    }
  }
};
}  // namespace detail

/// Returns the number of samples or tokens that the batch's mean loss divides by, if the batch provides it: by a free
/// function `loss_normalizer(batch)`, a member function or a data member of that name. In a mapping, or the `extra` of
/// a Batch, the first of `loss_normalizer`, `num_valid_tokens`, `valid_tokens`, `num_tokens` and `token_count` that is
/// a number or a tensor of one element. Call it before the batch moves to a device: it waits for a tensor there.
inline constexpr detail::LossNormalizer loss_normalizer{};

/// Returns the number of tokens in the batch, if the batch provides it: by a free function `num_tokens(batch)`, a
/// member function or a data member of that name, or in a mapping by the names `num_valid_tokens`, `valid_tokens`,
/// `num_tokens` and `token_count`. Never waits: skips a tensor on a device.
inline constexpr detail::NumTokens num_tokens{};

}  // namespace danling::inline v0::data
