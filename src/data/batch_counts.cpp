#include <danling/data/batch_counts.hpp>

#include <cmath>

#include <ATen/ops/sum.h>

namespace danling::inline v0::data::detail {

std::span<const CountName> normalizer_names() {
  static const std::array<CountName, 5> names = {{{"loss_normalizer", "loss_normalizer"},
                                                  {"num_valid_tokens", "num_valid_tokens"},
                                                  {"valid_tokens", "valid_tokens"},
                                                  {"num_tokens", "num_tokens"},
                                                  {"token_count", "token_count"}}};
  return names;
}

std::span<const CountName> token_names() { return normalizer_names().subspan(1); }

std::optional<std::int64_t> as_count(double value) {
  return std::abs(value) < 0x1p63 ? std::optional(static_cast<std::int64_t>(value)) : std::nullopt;  // false for nan
}

std::optional<std::int64_t> as_count(const at::Tensor& value, bool wait) {
  if (!value.defined() || value.numel() != 1 || value.is_complex() || (!wait && !value.is_cpu())) {
    return std::nullopt;
  }
  return value.is_floating_point() ? as_count(value.item<double>()) : value.item<std::int64_t>();
}

std::optional<std::int64_t> as_count(const State& value, bool wait) {
  if (value.is_tensor()) {
    return as_count(value.tensor(), wait);
  }
  if (value.is_bool()) {
    return value.boolean() ? 1 : 0;
  }
  return value.is_integer()  ? std::optional(value.integer())
         : value.is_double() ? as_count(value.number())
                             : std::nullopt;
}

std::optional<std::int64_t> sum_of_mask(const at::Tensor& mask, bool wait) {
  if (!mask.defined() || (!wait && !mask.is_cpu())) {
    return std::nullopt;
  }
  const auto count = as_count(mask.detach().sum(), true);
  // Additive masks, of 0 and -inf or large negative numbers, do not count tokens.
  return mask.is_floating_point() && count && *count <= 0 ? std::nullopt : count;
}

std::optional<std::int64_t> sum_of_mask(const State& mask, bool wait) {
  return mask.is_tensor() ? sum_of_mask(mask.tensor(), wait) : std::nullopt;
}

template std::optional<std::int64_t> find_count(const State&, std::span<const CountName>, bool);
template std::optional<std::int64_t> attention_count(const State&, bool);

}  // namespace danling::inline v0::data::detail
