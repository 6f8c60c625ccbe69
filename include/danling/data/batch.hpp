// The default batch: named tensors, nested where they need be, whose first dimension counts samples.
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

/// `input`, `target` (undefined where there is none) and whatever else belongs to the samples, by name.
struct Batch {
  /// [N, ...], or undefined where the inputs stand in `extra`.
  at::Tensor input = {};
  /// [N, ...] or undefined.
  at::Tensor target = {};
  /// Null, or a map from names to tensors, further maps and lists of them, and values that are no tensors (texts).
  State extra = {};
  /// Valid samples or tokens over which the loss is a mean; nothing leaves it to the runner.
  std::optional<std::int64_t> loss_normalizer = {};
  /// Tokens without padding, for rates; nothing if the samples are not tokens.
  std::optional<std::int64_t> num_tokens = {};
  /// Records and position of the batch; set by the loader.
  BatchInfo info = {};

  /// Number of samples: the first dimension of `input`; where there is none (several inputs stand in `extra`), of the
  /// first tensor of `extra` that has one, else of `target`. @throws DataError when `input` is a scalar, or no tensor
  /// counts.
  std::int64_t size() const { return input.defined() && input.dim() > 0 ? input.size(0) : size_without_input(); }

  /// Whether every tensor is on `device`.
  bool is_on(c10::Device device) const {
    return on(input, device) && on(target, device) && (extra.is_null() || extra_is_on(device));
  }

  /// The batch on `device`; tensors that are there already are shared. `non_blocking` copies overlap with the host
  /// only from pinned memory; copies to the host always wait.
  Batch to(c10::Device device, bool non_blocking = true) const& { return Batch(*this).to(device, non_blocking); }
  Batch to(c10::Device device, bool non_blocking = true) && {
    if (!is_on(device)) {
      move_to(device, non_blocking);
    }
    return std::move(*this);
  }

  /// The batch in page-locked host memory, from which copies to a device do not block. Needs an accelerator.
  Batch pin_memory() const& { return Batch(*this).pin_memory(); }
  Batch pin_memory() &&;

  /// `input`, `target` or a tensor of `extra`; dots lead into maps: `boxes.left`. @throws DataError that lists the
  /// existing names.
  const at::Tensor& at(std::string_view name) const;
  /// Adds or replaces; creates missing maps on the path.
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
