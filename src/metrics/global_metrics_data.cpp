// Counting rows, merging sums, and the state of GlobalMetrics.
#include <cmath>
#include <exception>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <metrics/global_metrics_impl.hpp>
#include <metrics/ignored.hpp>
#include <metrics/kept.hpp>
#include <metrics/scalar.hpp>

namespace danling::inline v0 {
namespace detail {

void RowCount::add(const RowCount& more) {
  host += more.host;
  if (more.device.defined()) {
    if (device.defined()) {
      device.add_(more.device);
    } else {
      device = kept_copy(more.device);
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
    total = kept_copy(more);
    return;
  }
  // Numbers move from the host to a device: the other direction would wait.
  if (!more.is_cpu() && more.device() != total.device()) {
    total = kept_copy(total.to(more.device(), /*non_blocking=*/true));
  }
  if (which.merge) {
    which.merge(total, more.to(total.device()));
    if (total.is_inference()) {
      total = kept_copy(total);
    }
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

// Whether it is strided, as all stored numbers are.
bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_nested() && !tensor.is_quantized();
}

// Required form of sums: as declared, else as the existing ones.
std::optional<RunningSums::Form> form_of_sums(const RunningSums& which, const at::Tensor& present) {
  if (which.form || !present.defined()) {
    return which.form;
  }
  return RunningSums::Form{present.scalar_type(), present.sizes().vec()};
}

at::Tensor read_sums(const RunningSums& which, const State::Map& state, bool expected, const at::Tensor& present) {
  const State* found = state.find(which.key);
  check<StateError>((found != nullptr) == expected, kLoad, "expected ", expected ? "" : "no ", "sums ",
                    quote(which.key), expected ? ", got none" : " of no batch, got some");
  if (found == nullptr) {
    return {};
  }
  check<StateError>(found->is_tensor() && is_plain(found->tensor()), kLoad, "expected the sums ", quote(which.key),
                    " as a dense tensor, got ", found->is_tensor() ? "another one" : found->kind());
  at::Tensor sums = found->tensor();
  const auto form = form_of_sums(which, present);
  if (form && which.upgrade && sums.sizes() != form->shape) {
    const at::Tensor upgraded = which.upgrade(sums);
    sums = upgraded.defined() ? upgraded : sums;
  }
  if (form && (sums.scalar_type() != form->dtype || sums.sizes() != form->shape)) {
    fail<StateError>(kLoad, "expected the sums ", quote(which.key), " as ", c10::toString(form->dtype), " ",
                     detail::shape_text(form->shape), ", got ", detail::tensor_text(sums));
  }
  return detail::kept_copy(sums);
}

// By key; `present` has sums of the same form, if any.
detail::SumsByKey read_all_sums(const std::vector<RunningSumsPtr>& keys, const State::Map& state, bool expected,
                                const detail::SumsByKey& present) {
  detail::SumsByKey out;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    out.push_back(read_sums(*keys[i], state, expected, present[i]));
  }
  check<StateError>(state.size() == (expected ? keys.size() : 0), kLoad, "expected ", keys.size(), " sums, got ",
                    state.size(), "; were they kept by other metrics?");
  return out;
}

// Another container's state has other parts, or parts of other kinds.
void check_parts(const State& state) {
  check<StateError>(state.is_map(), kLoad, "expected a map, got ", state.kind());
  constexpr const char* expected = "expected n, count, sums and last_sums, got a state ";
  for (const char* key : {"n", "count", "last"}) {
    const State* part = state.find(key);
    check<StateError>(part != nullptr || key == std::string_view("last"), kLoad, expected, "without ", quote(key));
    check<StateError>(part == nullptr || part->is_integer(), kLoad, "expected an integer ", quote(key), ", got ",
                      part == nullptr ? "" : part->kind());
  }
  for (const char* key : {"sums", "last_sums"}) {
    const State* part = state.find(key);
    check<StateError>(part != nullptr, kLoad, expected, "without ", quote(key));
    check<StateError>(part->is_map(), kLoad, "expected a map ", quote(key), ", got ", part->kind());
  }
  for (const char* key : {"preds", "targets"}) {
    const State* part = state.find(key);
    check<StateError>(part == nullptr || part->is_tensor(), kLoad, "expected a tensor ", quote(key), ", got ",
                      part == nullptr ? "" : part->kind());
  }
}

// Runs each metric on no rows of this form, on the host: the library's metrics throw for shapes that they cannot read.
void check_readable(const std::vector<MetricFunc>& metrics, const std::vector<RunningSumsPtr>& sums,
                    const at::Tensor& preds, const at::Tensor& targets) {
  const auto none_like = [](const at::Tensor& rows) {
    std::vector<std::int64_t> sizes = rows.sizes().vec();
    sizes[0] = 0;
    return at::zeros(sizes, rows.scalar_type());
  };
  const MetricState nothing(none_like(preds), none_like(targets));
  try {
    for (const RunningSumsPtr& which : sums) {
      if (which->form) {
        nothing.sums(which);
      }
    }
    for (const MetricFunc& metric : metrics) {
      if (metric.preds_targets) {
        metric.compute(nothing);
      }
    }
  } catch (const MetricError& error) {
    fail<StateError>(kLoad, "expected predictions and targets that the metrics can read, got ",
                     detail::tensor_text(preds), " and ", detail::tensor_text(targets), ": ", error.what());
  } catch (const std::exception&) {
    // A user's metric that cannot read empty data proves nothing.
  }
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
  check_parts(state);
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
    check<StateError>(is_plain(rows) && is_plain(labels), kLoad,
                      "expected predictions and targets as dense tensors, got others");
    loaded.last_rows = state.at("last").integer();
    check<StateError>(rows.dim() > 0 && labels.dim() > 0 && rows.size(0) == labels.size(0) && loaded.last_rows >= 0 &&
                          loaded.last_rows <= rows.size(0),
                      kLoad, "expected as many predictions as targets, and no fewer than the last ", loaded.last_rows,
                      ", got ", detail::tensor_text(rows), " and ", detail::tensor_text(labels));
    check_readable(impl_->metrics, impl_->sums, rows, labels);
    loaded.preds.append(rows, impl_->options.device);
    loaded.targets.append(labels, impl_->options.device);
  }
  const State::Map& totals = state.at("sums").map();
  const bool any = impl_->keeps ? preds != nullptr : totals.size() > 0;
  loaded.totals = read_all_sums(impl_->sums, totals, any, impl_->local.totals);
  loaded.last = read_all_sums(impl_->sums, state.at("last_sums").map(), any, loaded.totals);
  impl_->replace(std::move(loaded));
}

}  // namespace danling::inline v0
