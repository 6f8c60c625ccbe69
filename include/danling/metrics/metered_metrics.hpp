// Metrics with one average meter each, independent of their input.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/metrics/average_meter.hpp>
#include <danling/metrics/meter_map.hpp>
#include <danling/metrics/metrics.hpp>

namespace danling::inline v0 {

namespace detail {
using NamedMeters = std::vector<std::pair<std::string_view, AverageMeter*>>;

void synchronize_meters(const NamedMeters& meters, std::string_view component, const Group& group);
State state_of_meters(const NamedMeters& meters);
void load_meters(const NamedMeters& meters, std::string_view component, const State& state);
State merge_meter_states(const NamedMeters& meters, std::string_view component, std::span<const State> states);
}  // namespace detail

/// Named meters as metrics. `Base` is MetricsBase or derives from it; `Meter` is an AverageMeter with
/// `higher_is_better()`. Derived classes update the meters.
template <class Base, class Meter>
class MeteredMetrics : public Base {
 public:
  /// @throws MetricError that lists the known names.
  Meter& at(std::string_view name) { return meters_.at(name); }
  const Meter& at(std::string_view name) const { return meters_.at(name); }
  std::size_t size() const { return meters_.size(); }

  void reset() override { meters_.reset(); }
  void continue_batch() override { meters_.continue_batch(); }
  void begin_batch(std::int64_t index) override { meters_.begin_batch(index); }

  Result value() const override {
    return meters_.collect([](const Meter& meter) { return meter.value(); });
  }
  Result batch() const override {
    return meters_.collect([](const Meter& meter) { return meter.batch(); });
  }
  Result average() const override {
    return meters_.collect([](const Meter& meter) { return meter.average(); });
  }
  Result sum() const {
    return meters_.collect([](const Meter& meter) { return meter.total(); });
  }
  Result count() const override {
    return meters_.collect([](const Meter& meter) { return static_cast<double>(meter.count()); });
  }
  Result n() const override {
    return meters_.collect([](const Meter& meter) { return static_cast<double>(meter.n()); });
  }

  /// Synchronizes all meters in one exchange. @throws MetricError on all ranks also when the ranks' metric names
  /// differ.
  void synchronize(const Group& group) override { detail::synchronize_meters(list(), component_, group); }

  State state_dict() const override { return detail::state_of_meters(list()); }
  /// @throws StateError, changing nothing, when the names differ or a part is not the state of a meter.
  void load_state_dict(const State& state) override { detail::load_meters(list(), component_, state); }
  State merge_states(std::span<const State> states) const override {
    return detail::merge_meter_states(list(), component_, states);
  }

  std::optional<bool> higher_is_better(std::string_view name) const override {
    const Meter* meter = meters_.find(name);
    return meter != nullptr ? meter->higher_is_better() : std::nullopt;
  }

 protected:
  /// `component` is the first part of error messages, such as `stream_metrics`.
  explicit MeteredMetrics(const char* component) : component_(component) {}

  MeterMap<Meter> meters_;

 private:
  detail::NamedMeters list() const {
    detail::NamedMeters out;
    for (const auto& entry : meters_) {
      out.emplace_back(entry.name, const_cast<Meter*>(&entry.meter));
    }
    return out;
  }

  const char* component_;
};

}  // namespace danling::inline v0
