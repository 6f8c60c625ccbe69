// What the loader and the runner ask of a batch, for batches of any type.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace danling::inline v0::data {

namespace detail {
// Found only by argument-dependent lookup, in the namespace of the user's type.
void batch_size() = delete;
void to_device() = delete;
void loss_normalizer() = delete;

template <class B>
concept MemberSize = requires(const B& batch) {
  { batch.size() } -> std::convertible_to<std::int64_t>;
};
template <class B>
concept FreeSize = requires(const B& batch) {
  { batch_size(batch) } -> std::convertible_to<std::int64_t>;
};
template <class B>
concept MemberTo = requires(B batch, c10::Device device) {
  { std::move(batch).to(device) } -> std::convertible_to<B>;
};
template <class B>
concept FreeTo = requires(B batch, c10::Device device) {
  { to_device(std::move(batch), device) } -> std::convertible_to<B>;
};
template <class B>
concept MemberNormalizerCall = requires(const B& batch) {
  { batch.loss_normalizer() } -> std::convertible_to<std::optional<std::int64_t>>;
};
template <class B>
concept MemberNormalizer = requires(const B& batch) {
  { batch.loss_normalizer } -> std::convertible_to<std::optional<std::int64_t>>;
};
template <class B>
concept FreeNormalizer = requires(const B& batch) {
  { loss_normalizer(batch) } -> std::convertible_to<std::optional<std::int64_t>>;
};
}  // namespace detail

/// `std::int64_t size() const`, or a free `batch_size(batch)` beside the type, gives the number of samples.
template <class B>
concept HasBatchSize = std::same_as<B, at::Tensor> || detail::MemberSize<B> || detail::FreeSize<B>;

/// `B to(c10::Device) const`, or a free `to_device(batch, device)` beside the type, moves a batch.
template <class B>
concept HasToDevice = std::same_as<B, at::Tensor> || detail::MemberTo<B> || detail::FreeTo<B>;

/// A type that can be a batch: movable, counts its samples and moves to a device.
template <class B>
concept BatchType = std::movable<B> && HasBatchSize<B> && HasToDevice<B>;

namespace detail {
struct BatchSize {
  template <HasBatchSize B>
  std::int64_t operator()(const B& batch) const {
    if constexpr (std::same_as<B, at::Tensor>) {
      return batch.size(0);
    } else if constexpr (FreeSize<B>) {
      return batch_size(batch);
    } else {
      return batch.size();
    }
  }
};

struct ToDevice {
  template <HasToDevice B>
  B operator()(B batch, c10::Device device) const {
    if constexpr (std::same_as<B, at::Tensor>) {
      return batch.device() == device ? std::move(batch) : batch.to(device, /*non_blocking=*/true);
    } else if constexpr (FreeTo<B>) {
      return to_device(std::move(batch), device);
    } else {
      return std::move(batch).to(device);
    }
  }
};

struct LossNormalizer {
  template <class B>
  std::optional<std::int64_t> operator()(const B& batch) const {
    if constexpr (FreeNormalizer<B>) {
      return loss_normalizer(batch);
    } else if constexpr (MemberNormalizerCall<B>) {
      return batch.loss_normalizer();
    } else if constexpr (MemberNormalizer<B>) {
      return batch.loss_normalizer;
    } else {
      return std::nullopt;
    }
  }
};
}  // namespace detail

/// Samples in a batch.
inline constexpr detail::BatchSize batch_size{};

/// The batch on `device`. Move the batch in: one that is there already costs a device comparison.
inline constexpr detail::ToDevice to_device{};

/// How many samples or tokens the batch's mean loss stands for, where the batch says so: a free
/// `loss_normalizer(batch)`, a member function or a data member of that name. Ask before moving the batch.
inline constexpr detail::LossNormalizer loss_normalizer{};

}  // namespace danling::inline v0::data
