#include <danling/metrics/global_metrics.hpp>

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isnan.h>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/metrics/preprocess.hpp>
#include <danling/tape/observer.hpp>

#include <metrics/global_metrics_impl.hpp>
#include <metrics/metric_check.hpp>
#include <metrics/metric_errors.hpp>
#include <metrics/scalar.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0 {
namespace {

constexpr const char* update_where = "global_metrics.update";

void check_rows(const detail::RowStore& kept, const at::Tensor& rows, std::string_view what) {
  if (!kept.fits(rows)) {
    fail<MetricError>(update_where, "expected ", what, " as in earlier batches, ", kept.description(), ", got ",
                      detail::tensor_text(rows));
  }
}

Result::Value result_value(const MetricValue& answer) {
  if (const auto* number = std::get_if<double>(&answer.get())) {
    return *number;
  }
  const at::Tensor tensor = answer.tensor();
  if (!tensor.defined() || tensor.numel() == 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const at::Tensor numbers = tensors::raw(tensor.to(at::kCPU, at::kDouble));
  if (numbers.numel() == 1) {
    return *numbers.const_data_ptr<double>();
  }
  return detail::elements_value(numbers);
}

}  // namespace

GlobalMetrics::GlobalMetrics(std::vector<MetricEntry> metrics, GlobalMetricsOptions options)
    : impl_(std::make_unique<Impl>(merge_entries(std::move(metrics)), std::move(options))) {}

GlobalMetrics::~GlobalMetrics() = default;
GlobalMetrics::GlobalMetrics(GlobalMetrics&&) noexcept = default;
GlobalMetrics& GlobalMetrics::operator=(GlobalMetrics&&) noexcept = default;

GlobalMetrics::Impl::Impl(std::vector<MetricFunc> given, GlobalMetricsOptions chosen) : options(std::move(chosen)) {
  constexpr const char* where = "global_metrics.create";
  check<MetricError>(!given.empty(), where, "expected at least one metric, got none");
  for (const MetricFunc& metric : given) {
    detail::check_metric(metric, where);
    check<MetricError>(metric.preds_targets || !metric.sums.empty(), where, "expected ", quote(metric.name),
                       " to set `preds_targets` or `sums`, got neither");
    keeps = keeps || metric.preds_targets;
    for (const RunningSumsPtr& needed : metric.sums) {
      bool shared = false;
      for (const RunningSumsPtr& other : sums) {
        shared = shared || other->key == needed->key;
      }
      if (!shared) {
        sums.push_back(needed);
      }
    }
  }
  metrics = std::move(given);
  replace({});
}

void GlobalMetrics::Impl::replace(Local other) {
  local = std::move(other);
  local.totals.resize(sums.size());
  local.last.resize(sums.size());
  sent = {};
  sent_index = -2;
  merged.reset();
  average.reset();
  resend_all = true;
}

void GlobalMetrics::update(const at::Tensor& prediction, const at::Tensor& target) {
  if (tape::observer() != nullptr) [[unlikely]] {
    tape::host_call(
        "metrics", {prediction, target}, [this](const tape::Tensors& now) { update(now[0], now[1]); }, &lifetime_);
    return;
  }
  const c10::NoGradGuard no_grad;
  const auto [given_preds, given_targets] = impl_->options.preprocess ? impl_->options.preprocess(prediction, target)
                                                                      : metrics::base_preprocess(prediction, target);
  if (!given_preds.defined() || !given_targets.defined()) {
    fail<MetricError>(update_where, "expected a prediction and a target, got ", detail::tensor_text(given_preds),
                      " and ", detail::tensor_text(given_targets));
  }
  const at::Tensor preds = detail::as_rows(given_preds);
  const at::Tensor targets = detail::as_rows(given_targets);
  auto& local = impl_->local;
  if (preds.size(0) != targets.size(0)) {
    fail<MetricError>(update_where, "expected as many rows of predictions as of targets, got ",
                      detail::tensor_text(preds), " and ", detail::tensor_text(targets));
  }
  if (impl_->keeps) {
    check_rows(local.preds, preds, "predictions");
    check_rows(local.targets, targets, "targets");
  }
  detail::SumsByKey batch;
  batch.reserve(impl_->sums.size());
  for (const auto& which : impl_->sums) {
    try {
      batch.push_back(which->of_batch(preds, targets));
    } catch (...) {
      detail::rethrow_from_metric(impl_->name_with(*which));  // found only now: this is the path of a step
    }
  }
  detail::RowCount rows = impl_->count_rows(targets);

  impl_->merged.reset();
  impl_->average.reset();
  const bool new_batch = impl_->begin_update();
  if (impl_->keeps) {
    local.preds.append(preds, impl_->options.device);
    local.targets.append(targets, impl_->options.device);
    local.batches.add(local.last_index, targets.size(0));
    local.last_rows = targets.size(0) + (new_batch ? 0 : local.last_rows);
  }
  const auto part = static_cast<std::size_t>(local.next_part);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    detail::merge_part(*impl_->sums[i], local.totals[i], part, batch[i]);
    if (new_batch) {
      local.last[i].clear();
    }
    if (part == 0 && new_batch) {
      local.last[i].push_back(std::move(batch[i]));
    } else {
      detail::merge_part(*impl_->sums[i], local.last[i], part, batch[i], /*shared=*/true);
    }
  }
  local.count.add(rows);
  if (new_batch) {
    local.n = std::move(rows);
  } else {
    local.n.add(rows);
  }
}

bool GlobalMetrics::Impl::begin_update() {
  bool new_batch = local.last_index < 0;
  if (local.next_index >= 0) {
    new_batch = new_batch || local.next_index > local.last_index;
    local.last_index = local.next_index;
  } else {
    new_batch = new_batch || !local.continues;
    local.next_part = local.continues ? local.next_part : 0;
    local.last_index += new_batch ? 1 : 0;
  }
  local.continues = false;
  // Other ranks already have a part of this batch.
  resend_all = resend_all || (!new_batch && local.last_index <= sent_index);
  return new_batch;
}

void GlobalMetrics::continue_batch() {
  auto& local = impl_->local;
  local.continues = true;
  local.num_parts = std::max(local.num_parts, ++local.next_part + 1);
}

// A state of a run in one process numbers each update, and several updates may belong to one batch.
void GlobalMetrics::Impl::begin_numbers(std::int64_t index) {
  if (local.next_index < 0 && sent_index < 0 && 0 < index && index < local.last_index) {
    local.last_index = index - 1;
    const std::int64_t rows = std::exchange(local.batches, {}).rows();
    if (keeps && local.preds.like().defined()) {
      local.batches.add(local.last_index, rows);
    }
  }
}

void GlobalMetrics::begin_batch(std::int64_t index) {
  impl_->begin_numbers(index);
  auto& local = impl_->local;
  const std::int64_t before = std::max<std::int64_t>({local.last_index, local.next_index, 0});
  check<MetricError>(index >= before, "global_metrics.begin_batch", "expected a number of at least ", before, ", got ",
                     index, "; call reset() between two passes");
  local.next_part = index == local.next_index ? local.next_part + 1 : 0;
  local.num_parts = std::max(local.num_parts, local.next_part + 1);
  local.next_index = index;
}

void GlobalMetrics::reset() { impl_->replace({}); }

detail::MetricData GlobalMetrics::Impl::own_last_data() {
  return {local.preds.slice(local.preds.size() - local.last_rows, local.preds.size()),
          local.targets.slice(local.targets.size() - local.last_rows, local.targets.size()), totals_of(local.last)};
}

detail::SumsByKey GlobalMetrics::Impl::totals_of(const std::vector<detail::PartSums>& by_key) const {
  detail::SumsByKey out;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    out.push_back(detail::total_of(*sums[i], by_key[i]));
  }
  return out;
}

Result GlobalMetrics::Impl::compute(const detail::MetricData& data) const {
  const c10::NoGradGuard no_grad;
  MetricState state(data.preds, data.targets);
  bool nothing = !data.preds.defined();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (data.sums[i].defined()) {
      state.set(sums[i], data.sums[i]);
      nothing = false;
    }
  }
  if (nothing) {
    return for_each_name(std::numeric_limits<double>::quiet_NaN());
  }
  Result result;
  for (const MetricFunc& metric : metrics) {
    result.set(metric.name, detail::in_metric(metric.name, [&] { return result_value(metric.compute(state)); }));
  }
  return result;
}

Result GlobalMetrics::Impl::for_each_name(double number) const {
  Result result;
  for (const MetricFunc& metric : metrics) {
    result.set(metric.name, number);
  }
  return result;
}

Result GlobalMetrics::value() const { return impl_->compute(impl_->own_last_data()); }

Result GlobalMetrics::batch() const { return impl_->compute(impl_->last_data()); }

Result GlobalMetrics::average() const {
  if (!impl_->average) {
    impl_->average = impl_->compute(impl_->all_data());
  }
  return *impl_->average;
}

Result GlobalMetrics::n() const {
  return impl_->for_each_name(static_cast<double>(impl_->merged ? impl_->merged->n : impl_->local.n.read()));
}

Result GlobalMetrics::count() const {
  return impl_->for_each_name(static_cast<double>(impl_->merged ? impl_->merged->count : impl_->local.count.read()));
}

at::Tensor GlobalMetrics::preds() const { return impl_->all_data().preds; }

at::Tensor GlobalMetrics::targets() const { return impl_->all_data().targets; }

at::Tensor GlobalMetrics::sums(std::string_view key) const {
  const std::size_t index = impl_->key_index(key);
  return impl_->merged ? impl_->merged->totals[index]
                       : detail::total_of(*impl_->sums[index], impl_->local.totals[index]);
}

std::string_view GlobalMetrics::Impl::name_with(const RunningSums& needed) const {
  for (const MetricFunc& metric : metrics) {
    for (const RunningSumsPtr& other : metric.sums) {
      if (other->key == needed.key) {
        return metric.name;
      }
    }
  }
  return needed.key;
}

std::size_t GlobalMetrics::Impl::key_index(std::string_view key) const {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i]->key == key) {
      return i;
    }
    known.push_back(sums[i]->key);
  }
  fail<MetricError>("global_metrics.sums", "expected one of [", join(known), "], got ", quote(key),
                    did_you_mean(key, known));
}

const std::vector<MetricFunc>& GlobalMetrics::metrics() const { return impl_->metrics; }

std::optional<bool> GlobalMetrics::higher_is_better(std::string_view name) const {
  for (const MetricFunc& metric : impl_->metrics) {
    if (metric.name == name) {
      return metric.higher_is_better;
    }
  }
  return std::nullopt;
}

}  // namespace danling::inline v0
