// The targets that a loss averages over, from what the loss says about itself: LibTorch's modules and danling's losses.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>
#include <typeinfo>
#include <variant>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// How many targets are not `ignore_index`. Waits for the device of `target`.
std::int64_t count_targets(const at::Tensor& target, std::int64_t ignore_index);

/// A loss with functions of its own, directly or behind a pointer.
template <class L>
concept StatesNormalizer = requires(const L& loss, const at::Tensor& target) {
  { loss.normalizer(target) } -> std::convertible_to<std::optional<std::int64_t>>;
  { loss.ignore_index() } -> std::convertible_to<std::optional<std::int64_t>>;
};
template <class L>
concept PointsToNormalizer = requires(const L& loss) {
  requires StatesNormalizer<std::remove_cvref_t<decltype(*loss)>>;
};

template <class Kind>
bool is_mean(const Kind&) {
  // torch::enumtype::kMean and kBatchMean; spelt by name so that torch/enum.h is not needed here.
  return std::string_view(typeid(Kind).name()).find("Mean") != std::string_view::npos;
}

/// The target value that the loss ignores, if it has one.
template <class L>
std::optional<std::int64_t> ignore_index_of(const L& loss) {
  if constexpr (StatesNormalizer<L>) {
    return loss.ignore_index();
  } else if constexpr (PointsToNormalizer<L>) {
    return loss->ignore_index();
  } else if constexpr (requires {
                         { loss->options.ignore_index() } -> std::convertible_to<std::int64_t>;
                       }) {
    return loss->options.ignore_index();
  } else {
    return std::nullopt;
  }
}

/// How many targets the loss of this batch averages over; nothing when unknown. Counting ignored targets on a device
/// waits for it.
template <class L>
std::optional<std::int64_t> loss_normalizer(const L& loss, const at::Tensor& target) {
  if constexpr (StatesNormalizer<L>) {
    return loss.normalizer(target);
  } else if constexpr (PointsToNormalizer<L>) {
    return loss->normalizer(target);
  } else {
    if (!target.defined()) {
      return std::nullopt;
    }
    if (const auto ignored = ignore_index_of(loss)) {
      return count_targets(target, *ignored);
    }
    if constexpr (requires { loss->options.reduction().index(); }) {
      // In each of LibTorch's reduction variants the mean is the only alternative with this name.
      if (std::visit([](const auto& kind) { return is_mean(kind); }, loss->options.reduction())) {
        return target.numel();
      }
    }
    return std::nullopt;
  }
}

}  // namespace danling::inline v0::detail
