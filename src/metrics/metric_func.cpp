#include <danling/metrics/metric_func.hpp>

#include <algorithm>

#include <danling/core/error.hpp>

#include <metrics/metric_check.hpp>

namespace danling::inline v0 {

void MetricState::set(RunningSumsPtr which, at::Tensor sums) { sums_.emplace_back(std::move(which), std::move(sums)); }

bool MetricState::has(const RunningSumsPtr& which) const {
  return std::any_of(sums_.begin(), sums_.end(),
                     [&](const auto& item) { return item.first == which || item.first->key == which->key; });
}

at::Tensor MetricState::sums(const RunningSumsPtr& which) const {
  for (const auto& [known, sums] : sums_) {
    if (known == which || known->key == which->key) {
      return sums;
    }
  }
  check<MetricError>(preds_.defined() && targets_.defined(), "metric_state.sums", "expected the sums ",
                     quote(which->key), ", which are not stored; list them in the metric's `sums`");
  return sums_.emplace_back(which, which->of_batch(preds_, targets_)).second;
}

at::Tensor MetricState::shared(const std::string& key, const std::function<at::Tensor()>& make) const {
  for (const auto& [known, made] : shared_) {
    if (known == key) {
      return made;
    }
  }
  return shared_.emplace_back(key, make()).second;
}

namespace detail {

void check_metric(const MetricFunc& metric, std::string_view where) {
  check<MetricError>(!metric.name.empty(), where, "expected metrics with names, got one without");
  check<MetricError>(metric.compute != nullptr, where, "expected ", quote(metric.name),
                     " to have a function `compute`, got none");
  check_sums(metric, where);
}

void check_sums(const MetricFunc& metric, std::string_view where) {
  for (const RunningSumsPtr& sums : metric.sums) {
    check<MetricError>(sums != nullptr, where, "expected ", quote(metric.name), " to read sums, got a null pointer");
    check<MetricError>(!sums->key.empty(), where, "expected the sums that ", quote(metric.name),
                       " reads to have a key, got none");
    check<MetricError>(sums->of_batch != nullptr, where, "expected the sums ", quote(sums->key), " that ",
                       quote(metric.name), " reads to have a function `of_batch`, got none");
  }
}

}  // namespace detail

}  // namespace danling::inline v0
