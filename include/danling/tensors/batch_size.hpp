// Number of samples in a batch of any type.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

#include <ATen/core/Tensor.h>

#include <danling/core/error.hpp>
#include <danling/state/state.hpp>
#include <danling/tensors/detail/containers.hpp>

namespace danling::inline v0 {

namespace detail {
void batch_size() = delete;  // found only by argument-dependent lookup, in the namespace of the user's type

/// Types that `batch_size` counts by built-in rules, whatever members they have.
template <class B>
concept Tensors = std::same_as<B, at::Tensor> || std::same_as<B, State>;
template <class B>
concept BuiltIn = Tensors<B> || Container<B> || Plain<B>;

template <class B>
concept MemberSize = !BuiltIn<B> && requires(const B& batch) {
  { batch.size() } -> std::convertible_to<std::int64_t>;
};
template <class B>
concept FreeSize = !BuiltIn<B> && requires(const B& batch) {
  { batch_size(batch) } -> std::convertible_to<std::int64_t>;
};

template <class B>
struct Counts : std::bool_constant<Tensors<B> || MemberSize<B> || FreeSize<B>> {};
template <Container B>
struct Counts<B> : std::bool_constant<any_part<typename PartsOf<B>::type, Counts>> {};
}  // namespace detail

/// Counts samples by `std::int64_t size() const`, or by a free function `batch_size(batch)` in the namespace of the
/// type. The first dimension of a tensor counts; of a State or a standard container, the first part that has samples.
template <class B>
concept HasBatchSize = detail::Counts<B>::value;

namespace detail {
struct BatchSize {
  template <HasBatchSize B>
  std::int64_t operator()(const B& batch) const {
    const std::optional<std::int64_t> found = find(batch);
    if (!found) [[unlikely]] {
      fail<DataError>("data.batch_size",
                      "expected a tensor whose first dimension counts samples, got none in the batch");
    }
    return *found;
  }

 private:
  static std::optional<std::int64_t> find(const at::Tensor& tensor) {
    return tensor.defined() && tensor.dim() > 0 ? std::optional(tensor.size(0)) : std::nullopt;
  }
  static std::optional<std::int64_t> find(const State& tree) {
    std::optional<std::int64_t> found;
    if (tree.is_tensor()) {
      found = find(tree.tensor());
    } else if (tree.is_list() || tree.is_tuple()) {
      for (const State& item : tree.items()) {
        found = found ? found : find(item);
      }
    } else if (tree.is_map()) {
      for (const auto& entry : tree.map()) {
        found = found ? found : find(entry.value);
      }
    }
    return found;
  }
  template <class B>
  static std::optional<std::int64_t> find(const B& part) {
    if constexpr (Container<B>) {
      std::optional<std::int64_t> found;
      each_part(part, [&](const auto& inner) {
        if constexpr (HasBatchSize<std::remove_cvref_t<decltype(inner)>>) {
          found = found ? found : find(inner);
        }
      });
      return found;
    } else if constexpr (FreeSize<B>) {
      return batch_size(part);
    } else {
      return part.size();
    }
  }
};
}  // namespace detail

/// Returns the number of samples in a batch.
/// @throws DataError if no tensor in the batch has a dimension.
inline constexpr detail::BatchSize batch_size{};

}  // namespace danling::inline v0
