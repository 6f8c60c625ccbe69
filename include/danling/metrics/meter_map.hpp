// Meters by name, in the order of addition.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>
#include <danling/core/result.hpp>

namespace danling::inline v0 {

namespace detail {
/// A number that changes with each assignment to its owner and each move from it.
class VersionCounter {
 public:
  VersionCounter() = default;
  VersionCounter(const VersionCounter&) noexcept {}
  VersionCounter(VersionCounter&& other) noexcept { other.number_ = next(); }
  VersionCounter& operator=(const VersionCounter&) noexcept {
    number_ = next();
    return *this;
  }
  VersionCounter& operator=(VersionCounter&& other) noexcept {
    other.number_ = next();
    number_ = next();
    return *this;
  }
  std::uint64_t number() const { return number_; }

 private:
  static std::uint64_t next() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }
  std::uint64_t number_ = next();
};
}  // namespace detail

/// Base of AverageMeters and StreamMetrics (DanLing's MetersBase). References to meters stay valid until the map is
/// destroyed or assigned to. Lookup compares names one by one: keep a reference for use in every step.
template <class Meter>
class MeterMap {
 public:
  struct Entry {
    std::string name;
    Meter meter;
  };

  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  /// Changes when references to meters become invalid.
  std::uint64_t generation() const { return generation_.number(); }

  Meter* find(std::string_view name) { return const_cast<Meter*>(std::as_const(*this).find(name)); }
  const Meter* find(std::string_view name) const {
    for (const auto& entry : entries_) {
      if (entry.name == name) {
        return &entry.meter;
      }
    }
    return nullptr;
  }

  /// @throws MetricError that lists the known names.
  Meter& at(std::string_view name) { return const_cast<Meter&>(std::as_const(*this).at(name)); }
  const Meter& at(std::string_view name) const {
    const Meter* found = find(name);
    if (found == nullptr) {
      std::vector<std::string> known;
      for (const auto& entry : entries_) {
        known.push_back(entry.name);
      }
      detail::fail<MetricError>("meters.at", "expected one of [", detail::join(known), "], got ", detail::quote(name),
                                detail::did_you_mean(name, known));
    }
    return *found;
  }

  /// Appends a meter; the name must be new.
  Meter& add(std::string_view name, Meter meter) {
    detail::check<MetricError>(find(name) == nullptr, "meters.add", "expected a new name, got ", detail::quote(name),
                               ", which is taken");
    return entries_.emplace_back(Entry{std::string(name), std::move(meter)}).meter;
  }

  void reset() {
    for (auto& entry : entries_) {
      entry.meter.reset();
    }
  }

  void continue_batch() {
    for (auto& entry : entries_) {
      entry.meter.continue_batch();
    }
  }
  void begin_batch(std::int64_t index) {
    for (auto& entry : entries_) {
      entry.meter.begin_batch(index);
    }
  }

  /// Results of `read` for each meter, by name.
  template <class Read>
  Result collect(Read read) const {
    Result result;
    for (const auto& entry : entries_) {
      result.set(entry.name, read(entry.meter));
    }
    return result;
  }

 private:
  std::deque<Entry> entries_;
  detail::VersionCounter generation_;
};

}  // namespace danling::inline v0
