// Counts rows and merges sums of GlobalMetrics.
#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <danling/core/error.hpp>

#include <metrics/global_metrics_impl.hpp>
#include <metrics/kept.hpp>
#include <metrics/scalar.hpp>
#include <tensors/ignored.hpp>

namespace danling::inline v0 {
namespace detail {

void RowCount::add(const RowCount& more) {
  host += more.host;
  if (more.device.defined()) {
    if (device.defined()) {
      device.add_(more.device.to(device.device()));
    } else {
      device = copy_outside_inference_mode(more.device);
    }
  }
}

std::int64_t RowCount::read() const { return host + (device.defined() ? device.item<std::int64_t>() : 0); }

namespace {

template <class T>
bool add_on_host(at::Tensor& total, const at::Tensor& more) {
  if (total.scalar_type() != c10::CppTypeToScalarType<T>::value || more.scalar_type() != total.scalar_type()) {
    return false;
  }
  T* const to = total.mutable_data_ptr<T>();
  const T* const from = more.const_data_ptr<T>();
  for (std::int64_t i = 0; i < total.numel(); ++i) {
    to[i] += from[i];
  }
  return true;
}

// A row counts if any of its labels counts.
template <class T>
std::int64_t count_on_host(const at::Tensor& targets, T ignored) {
  const std::int64_t rows = targets.size(0);
  const std::int64_t width = rows == 0 ? 0 : targets.numel() / rows;
  const T* at = targets.const_data_ptr<T>();
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < rows; ++row, at += width) {
    bool any = false;
    for (std::int64_t i = 0; i < width; ++i) {
      any = any || at[i] != ignored;
    }
    count += any ? 1 : 0;
  }
  return count;
}

// A row counts if none of its numbers is nan.
template <class T>
std::int64_t count_numbers_on_host(const at::Tensor& targets) {
  const std::int64_t rows = targets.size(0);
  const std::int64_t width = rows == 0 ? 0 : targets.numel() / rows;
  const T* at = targets.const_data_ptr<T>();
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < rows; ++row, at += width) {
    bool any = false;
    for (std::int64_t i = 0; i < width; ++i) {
      any = any || std::isnan(at[i]);
    }
    count += any ? 0 : 1;
  }
  return count;
}

}  // namespace

void merge_sums(const RunningSums& which, at::Tensor& total, const at::Tensor& more) {
  if (!total.defined()) {
    total = copy_outside_inference_mode(more);
    return;
  }
  // Moves sums from the host to a device: the other direction would wait.
  if (!more.is_cpu() && more.device() != total.device()) {
    total = copy_outside_inference_mode(total.to(more.device(), /*non_blocking=*/true));
  }
  if (which.merge) {
    which.merge(total, more.to(total.device()));
    if (total.is_inference()) {
      total = copy_outside_inference_mode(total);
    }
    return;
  }
  if (total.is_cpu() && more.is_cpu() && total.is_contiguous() && more.is_contiguous() &&
      total.sizes() == more.sizes() && (add_on_host<std::int64_t>(total, more) || add_on_host<double>(total, more))) {
    return;
  }
  total.add_(more.to(total.device()));
}

bool is_exact(const RunningSums& which, at::ScalarType dtype) {
  return !which.merge && at::isIntegralType(dtype, /*includeBool=*/false);
}

void merge_part(const RunningSums& which, PartSums& parts, std::size_t part, const at::Tensor& more, bool shared) {
  const std::size_t at = is_exact(which, more.scalar_type()) ? 0 : part;
  if (parts.size() <= at) {
    parts.resize(at + 1);
  }
  if (shared && parts[at].defined()) {
    parts[at] = copy_outside_inference_mode(parts[at]);
  }
  merge_sums(which, parts[at], more);
}

void join_parts(const RunningSums& which, PartSums& parts, const PartSums& more) {
  for (const at::Tensor& part : more) {
    if (part.defined() && is_exact(which, part.scalar_type())) {
      merge_part(which, parts, 0, part);
    } else {
      parts.push_back(part);
    }
  }
}

bool keep_parts(const RunningSums& which, PartSums& parts, std::int64_t begin, std::int64_t end) {
  const at::Tensor any = first_defined(parts);
  if (!any.defined()) {
    return false;
  }
  if (is_exact(which, any.scalar_type())) {
    if (begin > 0) {
      parts = {at::zeros_like(any)};
    }
    return false;
  }
  PartSums kept(static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 1)));
  for (std::int64_t part = begin; part < std::min(end, static_cast<std::int64_t>(parts.size())); ++part) {
    kept[static_cast<std::size_t>(part - begin)] = parts[static_cast<std::size_t>(part)];
  }
  parts = std::move(kept);
  return true;
}

at::Tensor first_defined(const PartSums& parts) {
  const auto found = std::find_if(parts.begin(), parts.end(), [](const at::Tensor& part) { return part.defined(); });
  return found == parts.end() ? at::Tensor() : *found;
}

at::Tensor total_of(const RunningSums& which, const PartSums& parts) {
  at::Tensor total;
  bool own = false;
  for (const at::Tensor& part : parts) {
    if (!part.defined()) {
      continue;
    }
    if (!total.defined()) {
      total = part;
      continue;
    }
    if (!own) {
      total = copy_outside_inference_mode(total);
      own = true;
    }
    merge_sums(which, total, part);
  }
  return total;
}

}  // namespace detail

detail::RowCount GlobalMetrics::Impl::count_rows(const at::Tensor& targets) const {
  const std::optional<std::int64_t> ignored = options.ignore_index;
  const bool nans = options.ignore_nan && targets.is_floating_point();
  if (!ignored && !nans) {
    return {targets.size(0), {}};
  }
  if (targets.is_cpu() && targets.is_contiguous() && !nans && targets.scalar_type() == at::kLong) {
    return {detail::count_on_host<std::int64_t>(targets, *ignored), {}};
  }
  if (targets.is_cpu() && targets.is_contiguous() && !ignored && targets.scalar_type() == at::kFloat) {
    return {detail::count_numbers_on_host<float>(targets), {}};
  }
  const auto rows = targets.reshape({targets.size(0), targets.size(0) == 0 ? 0 : targets.numel() / targets.size(0)});
  at::Tensor counted = at::ones({targets.size(0)}, rows.options().dtype(at::kBool));
  if (ignored) {
    counted = detail::not_ignored(rows, *ignored).any(1);
  }
  if (nans) {
    counted = counted.logical_and(at::isnan(rows).any(1).logical_not());
  }
  const at::Tensor count = counted.sum(at::kLong);
  return targets.is_cpu() ? detail::RowCount{count.item<std::int64_t>(), {}} : detail::RowCount{0, count};
}

}  // namespace danling::inline v0
