// Several running averages by name.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include <danling/distributed/group.hpp>
#include <danling/metrics/average_meter.hpp>
#include <danling/metrics/meter_map.hpp>

namespace danling::inline v0 {

/// Average meters by name, in the order of first use (DanLing's AverageMeters).
class AverageMeters {
 public:
  /// One item of `update({{"loss", 0.6}, {"norms", tensor, n}})`. Refers to its arguments: do not store it.
  struct Update {
    Update(std::string_view meter, double number, std::int64_t weight = 1) : name(meter), value(number), n(weight) {}
    Update(std::string_view meter, const at::Tensor& values, std::int64_t weight = 1)
        : name(meter), tensor(&values), n(weight) {}

    std::string_view name;
    double value = 0.0;
    const at::Tensor* tensor = nullptr;
    std::int64_t n = 1;
  };

  /// Returns the meter of this name; adds it if missing. The reference stays valid while this object lives: keep it if
  /// every step needs it.
  AverageMeter& operator[](std::string_view name);
  /// @throws MetricError that lists the known names.
  AverageMeter& at(std::string_view name) { return meters_.at(name); }
  const AverageMeter& at(std::string_view name) const { return meters_.at(name); }
  bool contains(std::string_view name) const { return meters_.find(name) != nullptr; }

  bool empty() const { return meters_.empty(); }
  /// Changes when references to meters become invalid, that is, after an assignment.
  std::uint64_t generation() const { return meters_.generation(); }
  std::size_t size() const { return meters_.size(); }
  /// Iterates over entries with `name` and `meter`.
  auto begin() { return meters_.begin(); }
  auto end() { return meters_.end(); }
  auto begin() const { return meters_.begin(); }
  auto end() const { return meters_.end(); }

  void update(std::initializer_list<Update> updates);
  /// The same for a map of names to numbers or tensors.
  template <class Map>
    requires requires(const Map& map) { Update((*map.begin()).first, (*map.begin()).second); }
  void update(const Map& values) {
    for (const auto& [name, value] : values) {
      (*this)[name].update(value);
    }
  }

  /// Calls AverageMeter's method on all meters; meters added later belong to the batch too.
  void continue_batch() { meters_.continue_batch(); }
  void begin_batch(std::int64_t index);

  /// Empties the meters and keeps their names.
  void reset();

  // Results of AverageMeter's method of the same name, by meter; `sum` calls `total`. Wait for devices.
  Result value() const;
  Result batch() const;
  Result average() const;
  Result sum() const;
  Result count() const;
  Result n() const;

  /// Combines the ranks of `group` as AverageMeter::synchronize, all meters in one exchange. Ranks may have different
  /// meters, in any order: a meter that only other ranks have is added, without local values.
  void synchronize(const Group& group);

  /// `loss: 0.9000 (0.7500)` per meter, separated by tabs: last value and average. Waits for devices.
  std::string text(int precision = 4) const;

  State state_dict() const;
  /// Adds missing meters; resets those that the state lacks. References stay valid.
  /// @throws StateError, changing nothing, when a part is not the state of a meter.
  void load_state_dict(const State& state);
  /// AverageMeter::merge_states by name: states may have different meters, in any order.
  static State merge_states(std::span<const State> states);

 private:
  MeterMap<AverageMeter> meters_;
  std::int64_t batch_index_ = -1;  // from begin_batch
};

}  // namespace danling::inline v0
