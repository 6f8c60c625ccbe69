// Metrics that say what they need: predictions, or sums that batches share and merge.
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

/// Numbers that a batch contributes to metrics and that merge over batches and ranks: a confusion matrix, sums,
/// moments.
struct RunningSums {
  /// One key, one content: the metrics of a container that read the same key share its work and memory.
  std::string key;
  /// The numbers of one preprocessed batch: a tensor whose shape depends on nothing but the options in the key, int64
  /// for counts and float64 otherwise, on the device of the batch. Must not wait for the device.
  std::function<at::Tensor(const at::Tensor& preds, const at::Tensor& targets)> of_batch;
  /// Merges `more` into `total`, in place. Addition when empty. Of any split of the data it must give the numbers of
  /// the whole, to rounding.
  std::function<void(at::Tensor& total, const at::Tensor& more)> merge = {};
  /// Dtype and shape of the numbers, where they are known before any batch, as of all that the library makes: a saved
  /// state must have them.
  struct Form {
    at::ScalarType dtype = at::kDouble;
    std::vector<std::int64_t> shape = {};
  };
  std::optional<Form> form = std::nullopt;
  /// Saved numbers of an older form in the form above; undefined where it does not know theirs.
  std::function<at::Tensor(const at::Tensor& saved)> upgrade = {};
};

using RunningSumsPtr = std::shared_ptr<const RunningSums>;

/// What a metric reads, of one batch or of all data (DanLing's MetricState).
class MetricState {
 public:
  MetricState() = default;
  /// Of these predictions and targets, already preprocessed; sums are made from them when they are asked for.
  MetricState(at::Tensor preds, at::Tensor targets) : preds_(std::move(preds)), targets_(std::move(targets)) {}

  /// Sums that are already there.
  void set(RunningSumsPtr which, at::Tensor sums);

  /// Whether these sums are there already.
  bool has(const RunningSumsPtr& which) const;

  /// Undefined in a state of sums alone.
  const at::Tensor& preds() const { return preds_; }
  const at::Tensor& targets() const { return targets_; }
  /// @throws MetricError when they are neither there nor can be made from predictions and targets.
  at::Tensor sums(const RunningSumsPtr& which) const;
  /// What `make` gives, made once for all metrics of this state that ask for the same key: work on predictions and
  /// targets whose outcome does not merge over batches, such as sorting them.
  at::Tensor shared(const std::string& key, const std::function<at::Tensor()>& make) const;

 private:
  at::Tensor preds_;
  at::Tensor targets_;
  mutable std::vector<std::pair<RunningSumsPtr, at::Tensor>> sums_;
  mutable std::vector<std::pair<std::string, at::Tensor>> shared_;
};

/// A metric with a name and what it needs (DanLing's MetricFunc). A value; those of the library come from functions
/// such as `metrics::multiclass_f1_score(10)`. Serves containers of all data and streams alike:
///
///     MetricFunc{.name = "bias", .preds_targets = true, .higher_is_better = std::nullopt,
///                .compute = [](const MetricState& s) { return (s.preds() - s.targets()).mean(); }}
struct MetricFunc {
  std::string name;
  /// Whether it reads predictions and targets, which a container of all data must then keep.
  bool preds_targets = false;
  /// The sums that it reads.
  std::vector<RunningSumsPtr> sums = {};
  /// Whether it asks for predicted classes alone: scores may then stay logits.
  bool labels_only = false;
  /// Whether it reads logits: factories then leave scores as they come, and take no metric of probabilities beside it.
  bool logits = false;
  /// Nothing where neither direction is better.
  std::optional<bool> higher_is_better = std::nullopt;
  /// The value. On a device it must not wait. Empty data gives nan.
  std::function<MetricValue(const MetricState& state)> compute = {};

  MetricFunc named(std::string other) const {
    MetricFunc copy = *this;
    copy.name = std::move(other);
    return copy;
  }
};

}  // namespace danling::inline v0
