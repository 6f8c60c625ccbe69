// Metrics of several tasks, and their averages.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/metrics/meter_map.hpp>
#include <danling/metrics/metric.hpp>
#include <danling/metrics/metric_func.hpp>
#include <danling/metrics/metrics.hpp>

namespace danling::inline v0 {

/// Aggregation of a metric over the tasks that have it.
enum class Aggregate {
  none,     ///< no aggregation
  macro,    ///< the mean over tasks
  micro,    ///< weighted by the `n()` (for `value` and `batch`) or `count()` of each task's metric
  weighted  ///< weighted by `aggregate_weights`
};

struct MultiTaskOptions {
  Aggregate aggregate = Aggregate::none;
  /// Weights by task, for `weighted` only.
  std::map<std::string, double> aggregate_weights = {};
};

/// Metrics by task (DanLing's MultiTaskMetrics):
///
///     MultiTaskMetrics metrics({.aggregate = Aggregate::macro});
///     metrics.add("kind", metrics::multiclass_metrics(10));
///     metrics.add("size", metrics::regression_metrics());
///     metrics.update({{"kind", kinds, kind_targets}, {"size", sizes, size_targets}});
///     metrics.average();  // {"kind": {"auroc": …}, "size": {"pearson": …}, "aggregate": {"auroc": …, "pearson": …}}
///
/// `value`, `batch` and `average` omit tasks whose values are all nan. Their entry `aggregate` holds each metric, by
/// its name within the task, aggregated over the tasks that have it and where it is not nan.
class MultiTaskMetrics : public MetricsBase {
 public:
  /// One item of `update`. Refers to its arguments: do not store it.
  struct Update {
    std::string_view task;
    const at::Tensor& prediction;
    const at::Tensor& target;
  };

  /// @throws MetricError when weights are missing, unused, negative or not finite.
  explicit MultiTaskMetrics(MultiTaskOptions options = {});
  ~MultiTaskMetrics() override;
  /// Not copyable: copies would share the tasks.
  MultiTaskMetrics(const MultiTaskMetrics&) = delete;
  MultiTaskMetrics& operator=(const MultiTaskMetrics&) = delete;
  MultiTaskMetrics(MultiTaskMetrics&&) = default;
  MultiTaskMetrics& operator=(MultiTaskMetrics&&) = default;

  /// Adds a task. `update` updates tasks that are Metrics; update others, such as nested MultiTaskMetrics, directly.
  /// @throws MetricError when the name is empty or taken, or the pointer is null.
  void add(std::string_view task, std::shared_ptr<MetricsBase> metrics);
  template <std::derived_from<MetricsBase> M>
  void add(std::string_view task, M metrics) {
    add(task, std::make_shared<M>(std::move(metrics)));
  }
  /// One metric, averaged over batches by a MetricMeter after base_preprocess. @throws MetricError also when it lacks a
  /// name, a `compute`, or its sums a key or `of_batch`.
  void add(std::string_view task, MetricFunc metric);
  /// The same for a plain function; an empty `name` means the task's name.
  void add(std::string_view task, MetricCallable metric, std::string_view name = {});

  /// @throws MetricError that lists the known tasks.
  MetricsBase& at(std::string_view task) { return *find(task, "multi_task_metrics.at"); }
  const MetricsBase& at(std::string_view task) const { return *find(task, "multi_task_metrics.at"); }
  bool contains(std::string_view task) const { return tasks_.find(task) != nullptr; }
  std::vector<std::string> tasks() const;

  /// @throws MetricError, changing nothing, when a task is unknown or is not a Metrics. If the update of a task throws,
  /// the tasks before it in the list are already updated.
  void update(std::initializer_list<Update> updates);
  void reset() override;
  void continue_batch() override;
  void begin_batch(std::int64_t index) override;

  // Wait for devices. @throws MetricError when an aggregated metric is a number in one task and a list, or a list of
  // another length, in another; with `weighted` also when the tasks of the weights differ from the added tasks.
  Result value() const override;
  Result batch() const override;
  Result average() const override;
  Result n() const override;
  Result count() const override;

  /// Synchronizes all tasks. @throws MetricError on all ranks when the ranks' tasks differ.
  void synchronize(const Group& group) override;

  State state_dict() const override;
  /// @throws StateError, changing nothing, when the tasks differ or the state of one does not fit.
  void load_state_dict(const State& state) override;
  /// Merges by task. @throws StateError also when the states' tasks differ from these, or a task cannot merge states.
  State merge_states(std::span<const State> states) const override;
  /// Splits by task; null for tasks that must reset.
  std::optional<State> share_of_state(const State& merged, std::int64_t begin, std::int64_t end) const override;

  /// For `kind.acc` returns the direction in that task; for `aggregate.acc` or `acc` that in the first task with the
  /// metric.
  std::optional<bool> higher_is_better(std::string_view name) const override;

  /// `kind: acc: 0.9000 (0.8000)`, one line per task.
  std::string text(int precision = 4) const override;

 private:
  using Read = Result (MetricsBase::*)() const;

  void check_tasks(const State& state, const char* where) const;
  const std::shared_ptr<MetricsBase>& find(std::string_view task, const char* where) const;
  Result collect(Read read, Read weights) const;

  MeterMap<std::shared_ptr<MetricsBase>> tasks_;
  MultiTaskOptions options_;
};

}  // namespace danling::inline v0
