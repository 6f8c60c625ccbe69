#include <danling/metrics/metric_func.hpp>

#include <algorithm>

#include <danling/core/error.hpp>

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
                     quote(which->key), ", which were not kept; name them in the metric's `sums`");
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

}  // namespace danling::inline v0
