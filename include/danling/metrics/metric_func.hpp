// Metrics with declared inputs: predictions, or running sums that metrics share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/metrics/metric_value.hpp>

namespace danling::inline v0 {

/// Statistics of a batch that merge over batches and ranks: a confusion matrix, sums, moments.
struct RunningSums {
  /// Metrics of a container with the same key share work and memory: the key must identify the content.
  std::string key;
  /// Computes the statistics of one preprocessed batch: a tensor on its device whose shape depends only on the options
  /// in the key, int64 for counts, float64 otherwise. Must not wait for the device.
  std::function<at::Tensor(const at::Tensor& preds, const at::Tensor& targets)> of_batch;
  /// Merges `more` into `total`, in place; adds when empty. Any split of the data must yield the same numbers, up to
  /// rounding.
  std::function<void(at::Tensor& total, const at::Tensor& more)> merge = {};
  /// Dtype and shape, if known before any batch, as for all sums of the library: a saved state must match them.
  struct Form {
    at::ScalarType dtype = at::kDouble;
    std::vector<std::int64_t> shape = {};
  };
  std::optional<Form> form = std::nullopt;
  /// Converts saved numbers of an older format; returns undefined for an unknown format.
  std::function<at::Tensor(const at::Tensor& saved)> upgrade = {};
};

using RunningSumsPtr = std::shared_ptr<const RunningSums>;

/// Input of a metric: one batch or all data (DanLing's MetricState).
class MetricState {
 public:
  MetricState() = default;
  /// Takes preprocessed predictions and targets; computes sums from them on first use.
  MetricState(at::Tensor preds, at::Tensor targets) : preds_(std::move(preds)), targets_(std::move(targets)) {}

  /// Stores sums that are already computed.
  void set(RunningSumsPtr which, at::Tensor sums);

  /// Returns whether these sums are already computed.
  bool has(const RunningSumsPtr& which) const;

  /// Undefined if the state holds only sums.
  const at::Tensor& preds() const { return preds_; }
  const at::Tensor& targets() const { return targets_; }
  /// @throws MetricError when the sums are neither stored nor computable from predictions and targets.
  at::Tensor sums(const RunningSumsPtr& which) const;
  /// Returns the result of `make`, computed once for all metrics of this state that use the same key: for work that
  /// does not merge over batches, such as sorting predictions.
  at::Tensor shared(const std::string& key, const std::function<at::Tensor()>& make) const;

 private:
  at::Tensor preds_;
  at::Tensor targets_;
  mutable std::vector<std::pair<RunningSumsPtr, at::Tensor>> sums_;
  mutable std::vector<std::pair<std::string, at::Tensor>> shared_;
};

/// A metric with a name and its declared inputs (DanLing's MetricFunc). A value; the library's come from functions such
/// as `metrics::multiclass_f1_score(10)`. For GlobalMetrics and StreamMetrics:
///
///     MetricFunc{.name = "bias", .preds_targets = true, .higher_is_better = std::nullopt,
///                .compute = [](const MetricState& s) { return (s.preds() - s.targets()).mean(); }}
struct MetricFunc {
  std::string name;
  /// True if it reads predictions and targets; GlobalMetrics then stores them.
  bool preds_targets = false;
  /// The sums that it reads.
  std::vector<RunningSumsPtr> sums = {};
  /// True if it reads predicted classes only: scores may then stay logits.
  bool labels_only = false;
  /// True if it reads logits: factories then leave scores unchanged, and refuse metrics of probabilities with it.
  bool logits = false;
  /// Empty if neither direction is better.
  std::optional<bool> higher_is_better = std::nullopt;
  /// Computes the value; nan without data. Must not wait for a device.
  std::function<MetricValue(const MetricState& state)> compute = {};

  /// Returns a copy with another name.
  MetricFunc named(std::string other) const {
    MetricFunc copy = *this;
    copy.name = std::move(other);
    return copy;
  }
};

}  // namespace danling::inline v0
