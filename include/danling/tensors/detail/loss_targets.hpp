// Number of targets that a loss averages over, read from LibTorch's loss modules and danling's losses.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>
#include <typeinfo>
#include <variant>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// Counts the targets that differ from `ignore_index`. Waits for the device of `target`.
std::int64_t count_targets(const at::Tensor& target, std::int64_t ignore_index);

/// A loss with the functions `normalizer` and `ignore_index`, or a pointer to one.
template <class L>
concept HasNormalizer = requires(const L& loss, const at::Tensor& target) {
  { loss.normalizer(target) } -> std::convertible_to<std::optional<std::int64_t>>;
  { loss.ignore_index() } -> std::convertible_to<std::optional<std::int64_t>>;
};
template <class L>
concept PointerToNormalizer = requires(const L& loss) { requires HasNormalizer<std::remove_cvref_t<decltype(*loss)>>; };

template <class Kind>
bool is_mean(const Kind&) {
  // Matches torch::enumtype::kMean and kBatchMean by name, to avoid including torch/enum.h.
  return std::string_view(typeid(Kind).name()).find("Mean") != std::string_view::npos;
}

/// Returns the target value that the loss ignores, if it has one.
template <class L>
std::optional<std::int64_t> ignore_index_of(const L& loss) {
  if constexpr (HasNormalizer<L>) {
    return loss.ignore_index();
  } else if constexpr (PointerToNormalizer<L>) {
    return loss->ignore_index();
  } else if constexpr (requires {
                         { loss->options.ignore_index() } -> std::convertible_to<std::int64_t>;
                       }) {
    return loss->options.ignore_index();
  } else {
    return std::nullopt;
  }
}

/// Returns the number of targets that the loss averages over; nullopt when unknown. Waits for the device only to count
/// ignored targets.
template <class L>
std::optional<std::int64_t> loss_normalizer(const L& loss, const at::Tensor& target) {
  if constexpr (HasNormalizer<L>) {
    return loss.normalizer(target);
  } else if constexpr (PointerToNormalizer<L>) {
    return loss->normalizer(target);
  } else {
    if (!target.defined()) {
      return std::nullopt;
    }
    if (const auto ignored = ignore_index_of(loss)) {
      return count_targets(target, *ignored);
    }
    if constexpr (requires { loss->options.reduction().index(); }) {
      // In each of LibTorch's reduction variants, mean is the only alternative with this name.
      if (std::visit([](const auto& kind) { return is_mean(kind); }, loss->options.reduction())) {
        return target.numel();
      }
    }
    return std::nullopt;
  }
}

}  // namespace danling::inline v0::detail
