// Batch transforms, their composition and their random numbers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <tuple>
#include <utility>

#include <danling/data/batch.hpp>
#include <danling/data/batch_info.hpp>
#include <danling/data/batch_traits.hpp>
#include <danling/data/random.hpp>

namespace danling::inline v0::data::transforms {

/// `B operator()(B, const BatchInfo&) const`; loaders with workers call it from several threads at a time.
template <class T, class B>
concept TransformOf = BatchType<B> && requires(const T& transform, B batch, const BatchInfo& info) {
  { transform(std::move(batch), info) } -> std::convertible_to<B>;
};

/// Type of the transforms in this folder. They do not modify the memory of their input batch, which may belong to the
/// dataset. Images are [N, C, H, W] or [N, H, W] with any strides; results are contiguous. Parameters are drawn on the
/// host; images stay on their device, without waiting for it.
using Transform = std::function<Batch(Batch, const BatchInfo&)>;

/// Keys of the random numbers of one transform, unrelated to those of other names. The key of a sample is
/// `epoch_key.fold_in(c).fold_in(record)`, where c is a hash of the name: it depends on seed, split, epoch and record
/// only, not on batch, worker or process. (If a sampler repeats records: `sample_keys[i].fold_in(c)`.) The key of a
/// batch is `batch_key.fold_in(c)`.
class Keys {
 public:
  Keys(const BatchInfo& info, std::string_view name);

  /// Returns random numbers of sample `i`.
  Random random(std::size_t i) const;
  Random batch_random() const;

 private:
  const BatchInfo* info_;
  std::uint64_t constant_;
  RandomKey epoch_key_;
};

namespace detail {
/// Folds `place` into all keys of `info`, so that transforms at different places draw different numbers.
void set_keys(BatchInfo& out, const BatchInfo& info, std::size_t place);
}  // namespace detail

/// A chain of transforms. Each gets keys of its place in the chain: two transforms of one kind draw different numbers,
/// and the random numbers of users' transforms (`info.random(i)`) differ from those of all others.
template <class... T>
class Compose {
 public:
  explicit Compose(T... transforms) : transforms_(std::move(transforms)...) {}

  template <BatchType B = Batch>
    requires(TransformOf<T, B> && ...)
  B operator()(B batch, const BatchInfo& info) const {
    if constexpr (sizeof...(T) > 0) {
      BatchInfo keyed = info;
      std::apply([&](const T&... transform) { apply(batch, info, keyed, transform...); }, transforms_);
    }
    return batch;
  }

 private:
  template <class B>
  static void apply(B& batch, const BatchInfo& info, BatchInfo& keyed, const T&... transform) {
    std::size_t place = 0;
    ((detail::set_keys(keyed, info, place++), batch = transform(std::move(batch), std::as_const(keyed))), ...);
  }

  std::tuple<T...> transforms_;
};

/// Example: `compose(random_crop(32, {.padding = 4}), random_horizontal_flip(), normalize(mean, std))`.
template <class... T>
Compose<T...> compose(T... transforms) {
  return Compose<T...>(std::move(transforms)...);
}

}  // namespace danling::inline v0::data::transforms
