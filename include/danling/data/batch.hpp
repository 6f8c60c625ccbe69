// The default batch: `input`, `target` and further named tensors, whose first dimension counts samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/data/batch_info.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {
namespace data {

/// A batch with `input`, `target` (may be undefined) and other data of the samples by name.
struct Batch {
  /// [N, ...], or undefined if the inputs are in `extra`.
  at::Tensor input = {};
  /// [N, ...] or undefined.
  at::Tensor target = {};
  /// Null, or a map from names to tensors, nested maps, lists of them, and other values (text).
  State extra = {};
  /// Number of valid samples or tokens that the mean loss divides by; unset: the runner determines it.
  std::optional<std::int64_t> loss_normalizer = {};
  /// Number of tokens without padding, for rates; unset if samples are not tokens.
  std::optional<std::int64_t> num_tokens = {};
  /// Indices, keys and position of the batch; set by the loader.
  BatchInfo info = {};

  /// Returns the number of samples: the first dimension of `input`; without one (several inputs in `extra`), of the
  /// first tensor of `extra` that has a dimension, else of `target`.
  /// @throws DataError when `input` is a scalar, or no tensor has a first dimension.
  std::int64_t size() const { return input.defined() && input.dim() > 0 ? input.size(0) : size_without_input(); }

  /// Returns true if every tensor is on `device`.
  bool is_on(c10::Device device) const {
    return on(input, device) && on(target, device) && (extra.is_null() || extra_is_on(device));
  }

  /// Returns the batch on `device`; shares tensors that are already there. `non_blocking` copies overlap with the host
  /// only from pinned memory; copies to the host always wait.
  Batch to(c10::Device device, bool non_blocking = true) const& { return Batch(*this).to(device, non_blocking); }
  Batch to(c10::Device device, bool non_blocking = true) && {
    if (!is_on(device)) {
      move_to(device, non_blocking);
    }
    return std::move(*this);
  }

  /// Returns the batch in page-locked host memory, from which copies to a device do not block. Needs an accelerator.
  Batch pin_memory() const& { return Batch(*this).pin_memory(); }
  Batch pin_memory() &&;

  /// Returns `input`, `target` or a tensor of `extra`; dots separate nested names: `boxes.left`.
  /// @throws DataError that lists the existing names.
  const at::Tensor& at(std::string_view name) const;
  /// Adds or replaces a tensor; creates missing maps on the path. @throws DataError if another value is in the way
  void set(std::string_view name, at::Tensor tensor);

 private:
  static bool on(const at::Tensor& tensor, c10::Device device) {
    return !tensor.defined() || tensor.device() == device;
  }
  bool extra_is_on(c10::Device device) const;
  void move_to(c10::Device device, bool non_blocking);
  std::int64_t size_without_input() const;
};

}  // namespace data

using data::Batch;

}  // namespace danling::inline v0
