// What the loader and the runner ask of a batch, for batches of any type.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/core/error.hpp>
#include <danling/data/nested.hpp>
#include <danling/data/tensors.hpp>

namespace danling::inline v0::data {

namespace detail {
// Found only by argument-dependent lookup, in the namespace of the user's type.
void batch_size() = delete;
void to_device() = delete;
void pin_memory() = delete;
void loss_normalizer() = delete;

/// What the functions below treat themselves, whatever members it has.
template <class B>
concept Tensors = std::same_as<B, at::Tensor> || std::same_as<B, State>;
template <class B>
concept Own = Tensors<B> || Container<B> || Plain<B>;

template <class B>
concept MemberSize = !Own<B> && requires(const B& batch) {
  { batch.size() } -> std::convertible_to<std::int64_t>;
};
template <class B>
concept FreeSize = !Own<B> && requires(const B& batch) {
  { batch_size(batch) } -> std::convertible_to<std::int64_t>;
};
template <class B>
concept MemberTo = !Own<B> && requires(B batch, c10::Device device) {
  { std::move(batch).to(device) } -> std::convertible_to<B>;
};
template <class B>
concept FreeTo = !Own<B> && requires(B batch, c10::Device device) {
  { to_device(std::move(batch), device) } -> std::convertible_to<B>;
};
template <class B>
concept MemberPin = !Own<B> && requires(B batch) {
  { std::move(batch).pin_memory() } -> std::convertible_to<B>;
};
template <class B>
concept FreePin = !Own<B> && requires(B batch) {
  { pin_memory(std::move(batch)) } -> std::convertible_to<B>;
};
template <class B>
concept MemberNormalizerCall = !Own<B> && requires(const B& batch) {
  { batch.loss_normalizer() } -> std::convertible_to<std::optional<std::int64_t>>;
};
template <class B>
concept MemberNormalizer = !Own<B> && requires(const B& batch) {
  { batch.loss_normalizer } -> std::convertible_to<std::optional<std::int64_t>>;
};
template <class B>
concept FreeNormalizer = !Own<B> && requires(const B& batch) {
  { loss_normalizer(batch) } -> std::convertible_to<std::optional<std::int64_t>>;
};

template <class B>
struct Counts : std::bool_constant<Tensors<B> || MemberSize<B> || FreeSize<B>> {};
template <Container B>
struct Counts<B> : std::bool_constant<any_part<typename PartsOf<B>::type, Counts>> {};

template <class B>
struct Moves : std::bool_constant<Tensors<B> || Plain<B> || MemberTo<B> || FreeTo<B>> {};
template <Container B>
struct Moves<B> : std::bool_constant<all_parts<typename PartsOf<B>::type, Moves>> {};

template <class B>
struct Pins : std::bool_constant<Tensors<B> || Plain<B> || MemberPin<B> || FreePin<B>> {};
template <Container B>
struct Pins<B> : std::bool_constant<all_parts<typename PartsOf<B>::type, Pins>> {};
}  // namespace detail

/// `std::int64_t size() const`, or a free `batch_size(batch)` beside the type, gives the number of samples. A tensor
/// counts by its first dimension, and a State or a standard container by the first part of it that counts.
template <class B>
concept HasBatchSize = detail::Counts<B>::value;

/// `B to(c10::Device) const`, or a free `to_device(batch, device)` beside the type, moves a batch. Tensors, States and
/// standard containers of what moves (numbers and texts stay as they are) need neither.
template <class B>
concept HasToDevice = detail::Moves<B>::value;

/// `B pin_memory() const`, or a free `pin_memory(batch)` beside the type, puts a batch into page-locked memory.
/// Tensors, States and standard containers need neither.
template <class B>
concept HasPinMemory = detail::Pins<B>::value;

/// A type that can be a batch: movable, counts its samples and moves to a device. (t3w: IMiniBatch.)
template <class B>
concept BatchType = std::movable<B> && HasBatchSize<B> && HasToDevice<B>;

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
  template <class B>
  static std::optional<std::int64_t> find(const B& part) {
    std::optional<std::int64_t> found;
    if constexpr (std::same_as<B, at::Tensor>) {
      found = part.defined() && part.dim() > 0 ? std::optional(part.size(0)) : std::nullopt;
    } else if constexpr (std::same_as<B, State>) {
      each_tensor(part, [&](const at::Tensor& tensor) { found = found ? found : find(tensor); });
    } else if constexpr (Container<B>) {
      each_part(part, [&](const auto& inner) {
        if constexpr (HasBatchSize<std::remove_cvref_t<decltype(inner)>>) {
          found = found ? found : find(inner);
        }
      });
    } else if constexpr (FreeSize<B>) {
      found = batch_size(part);
    } else {
      found = part.size();
    }
    return found;
  }
};

struct ToDevice {
  template <HasToDevice B>
  B operator()(B batch, c10::Device device) const {
    if constexpr (std::same_as<B, at::Tensor>) {
      return tensor_to(std::move(batch), device);
    } else if constexpr (std::same_as<B, State>) {
      return map_tensors(batch, [&](at::Tensor tensor) { return tensor_to(std::move(tensor), device); });
    } else if constexpr (Container<B>) {
      each_part(batch, [&](auto& part) { part = (*this)(std::move(part), device); });
      return batch;
    } else if constexpr (Plain<B>) {
      return batch;
    } else if constexpr (FreeTo<B>) {
      return to_device(std::move(batch), device);
    } else {
      return std::move(batch).to(device);
    }
  }
};

struct PinMemory {
  template <HasPinMemory B>
  B operator()(B batch) const {
    if constexpr (std::same_as<B, at::Tensor>) {
      return pinned(batch);
    } else if constexpr (std::same_as<B, State>) {
      return map_tensors(batch, [](const at::Tensor& tensor) { return pinned(tensor); });
    } else if constexpr (Container<B>) {
      each_part(batch, [&](auto& part) { part = (*this)(std::move(part)); });
      return batch;
    } else if constexpr (Plain<B>) {
      return batch;
    } else if constexpr (FreePin<B>) {
      return pin_memory(std::move(batch));
    } else {
      return std::move(batch).pin_memory();
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

/// Samples in a batch. @throws DataError when a container's tensors are all undefined or scalars.
inline constexpr detail::BatchSize batch_size{};

/// The batch on `device`. Move the batch in: one that is there already costs a device comparison.
inline constexpr detail::ToDevice to_device{};

/// The batch in page-locked host memory, from which copies to a device need not wait; tensors on a device stay there.
/// Needs an accelerator.
inline constexpr detail::PinMemory pin_memory{};

/// How many samples or tokens the batch's mean loss stands for, where the batch says so: a free
/// `loss_normalizer(batch)`, a member function or a data member of that name. Ask before moving the batch.
inline constexpr detail::LossNormalizer loss_normalizer{};

}  // namespace danling::inline v0::data
