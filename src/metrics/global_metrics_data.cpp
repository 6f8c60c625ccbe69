// Counting rows, merging sums, and the state of GlobalMetrics.
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>

#include <danling/core/error.hpp>

#include <metrics/global_metrics_impl.hpp>
#include <metrics/ignored.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0 {
namespace detail {

void RowCount::add(const RowCount& more) {
  host += more.host;
  if (more.device.defined()) {
    if (device.defined()) {
      device.add_(more.device);
    } else {
      device = more.device.clone();
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

// A row counts when any of its labels does.
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

// A row counts when none of its numbers is nan.
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
    total = more.clone();
    return;
  }
  if (which.merge) {
    which.merge(total, more.to(total.device()));
    return;
  }
  if (total.is_cpu() && more.is_cpu() && total.is_contiguous() && more.is_contiguous() &&
      total.sizes() == more.sizes() && (add_on_host<std::int64_t>(total, more) || add_on_host<double>(total, more))) {
    return;
  }
  total.add_(more.to(total.device()));
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
    counted = metrics::detail::not_ignored(rows, *ignored).any(1);
  }
  if (nans) {
    counted = counted.logical_and(at::isnan(rows).any(1).logical_not());
  }
  const at::Tensor count = counted.sum(at::kLong);
  return targets.is_cpu() ? detail::RowCount{count.item<std::int64_t>(), {}} : detail::RowCount{0, count};
}

namespace {

constexpr const char* kLoad = "global_metrics.load_state_dict";

State::Map sums_state(const std::vector<RunningSumsPtr>& keys, const detail::SumsByKey& sums) {
  State::Map out;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (sums[i].defined()) {
      out.set(keys[i]->key, sums[i].clone());
    }
  }
  return out;
}

detail::SumsByKey read_sums(const std::vector<RunningSumsPtr>& keys, const State::Map& state, bool expected) {
  detail::SumsByKey out;
  for (const auto& which : keys) {
    const State* found = state.find(which->key);
    check<StateError>((found != nullptr) == expected, kLoad, "expected ", expected ? "" : "no ", "sums ",
                      quote(which->key), expected ? ", got none" : " of no batch, got some");
    out.push_back(found == nullptr ? at::Tensor() : found->tensor().clone());
  }
  check<StateError>(state.size() == (expected ? keys.size() : 0), kLoad, "expected ", keys.size(), " sums, got ",
                    state.size(), "; were they kept by other metrics?");
  return out;
}

}  // namespace

State GlobalMetrics::state_dict() const {
  auto& local = impl_->local;
  State::Map state{{"n", local.n.read()}, {"count", local.count.read()}};
  if (impl_->keeps) {
    state.set("last", local.last_rows);
    if (const at::Tensor preds = local.preds.all(); preds.defined()) {
      state.set("preds", preds);
      state.set("targets", local.targets.all());
    }
  }
  state.set("sums", sums_state(impl_->sums, local.totals));
  state.set("last_sums", sums_state(impl_->sums, local.last));
  return state;
}

void GlobalMetrics::load_state_dict(const State& state) {
  const c10::NoGradGuard no_grad;
  Impl::Local loaded;
  loaded.n.host = state.at("n").integer();
  loaded.count.host = state.at("count").integer();
  check<StateError>(loaded.n.host >= 0 && loaded.count.host >= loaded.n.host, kLoad,
                    "expected counts that are not negative and n within count, got n ", loaded.n.host, " and count ",
                    loaded.count.host);
  const State* preds = state.find("preds");
  const State* targets = state.find("targets");
  check<StateError>((state.find("last") != nullptr) == impl_->keeps, kLoad, "expected metrics that ",
                    impl_->keeps ? "keep" : "do not keep", " predictions, got the state of ones that ",
                    impl_->keeps ? "do not" : "do");
  check<StateError>((preds != nullptr) == (targets != nullptr) && (preds == nullptr || impl_->keeps), kLoad,
                    "expected predictions and targets, got one of them");
  if (preds != nullptr) {
    const at::Tensor& rows = preds->tensor();
    const at::Tensor& labels = targets->tensor();
    loaded.last_rows = state.at("last").integer();
    check<StateError>(rows.defined() && labels.defined() && rows.dim() > 0 && labels.dim() > 0 &&
                          rows.size(0) == labels.size(0) && loaded.last_rows >= 0 && loaded.last_rows <= rows.size(0),
                      kLoad, "expected as many predictions as targets, and no fewer than the last ", loaded.last_rows,
                      ", got ", detail::tensor_text(rows), " and ", detail::tensor_text(labels));
    loaded.preds.append(rows, impl_->options.device);
    loaded.targets.append(labels, impl_->options.device);
  }
  const State::Map& totals = state.at("sums").map();
  const bool any = impl_->keeps ? preds != nullptr : totals.size() > 0;
  loaded.totals = read_sums(impl_->sums, totals, any);
  loaded.last = read_sums(impl_->sums, state.at("last_sums").map(), any);
  impl_->replace(std::move(loaded));
}

}  // namespace danling::inline v0
