// Batches that are what their records are numbered, so that tests can compare orders with closed forms.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <danling/data/loader.hpp>

namespace loader_test {

namespace data = danling::data;
using danling::State;
using Numbers = std::vector<std::int64_t>;

struct Records {
  Numbers values;
  std::vector<data::RandomKey> keys;
  data::BatchInfo info;

  std::int64_t size() const { return static_cast<std::int64_t>(values.size()); }
  Records to(c10::Device) const { return *this; }
};

/// A sample that is its number.
struct Number {
  std::int64_t value = 0;
  static Records collate(std::vector<Number> numbers) {
    Records out;
    for (const Number& number : numbers) {
      out.values.push_back(number.value);
    }
    return out;
  }
};

/// Record i holds i; nothing is stored. `before_read` runs first, in the thread that reads.
class Computed : public data::Dataset<Records> {
 public:
  explicit Computed(std::int64_t size, std::function<void(std::span<const std::int64_t>)> before_read = {})
      : size_(size), before_read_(std::move(before_read)) {}
  std::int64_t size() const override { return size_; }
  Records get_batch(std::span<const std::int64_t> indices) override { return read(indices, {}); }
  Records read(std::span<const std::int64_t> indices, const data::BatchInfo& info) override {
    if (before_read_) {
      before_read_(indices);
    }
    Records out;
    out.values.assign(indices.begin(), indices.end());
    for (std::size_t i = 0; i < info.size(); ++i) {
      out.keys.push_back(info.key(i));
    }
    return out;
  }
  State source_info(std::int64_t index) const override { return State("record " + std::to_string(index)); }

 private:
  std::int64_t size_;
  std::function<void(std::span<const std::int64_t>)> before_read_;
};

/// Yields epoch * 1000 + 0, 1, ...; the jobs of its batches run `before_job`.
class Counting : public data::Stream<Records> {
 public:
  explicit Counting(std::int64_t size, std::function<void(std::int64_t)> before_job = {})
      : size_(size), before_job_(std::move(before_job)) {}
  std::optional<Records> next(std::int64_t num_samples) override {
    const auto job = read(num_samples, {});
    return job ? std::optional(job()) : std::nullopt;
  }
  std::function<Records()> read(std::int64_t num_samples, const data::BatchInfo& info) override {
    const std::int64_t count = std::min(num_samples, size_ - at_);
    if (count <= 0) {
      return {};
    }
    Records out;
    out.values.resize(static_cast<std::size_t>(count));
    std::iota(out.values.begin(), out.values.end(), epoch_ * 1000 + at_);
    for (std::size_t i = 0; i < std::min(info.size(), out.values.size()); ++i) {
      out.keys.push_back(info.key(i));
    }
    at_ += count;
    read_ += count;
    return [this, out = std::move(out)]() mutable {
      if (before_job_) {
        before_job_(out.values.front());
      }
      return std::move(out);  // once: another call would give nothing
    };
  }
  std::int64_t skip(std::int64_t num_samples) override {
    const std::int64_t count = std::min(num_samples, size_ - at_);
    at_ += count;
    skipped_ += count;
    return count;
  }
  void reset(std::int64_t epoch) override {
    epoch_ = epoch;
    at_ = 0;
  }
  State state_dict() const override {
    ++snapshots_;
    State state;
    state["epoch"] = epoch_;
    state["at"] = at_;
    return state;
  }
  void load_state_dict(const State& state) override {
    danling::detail::check<danling::StateError>(state.at("at").integer() >= 0, "test.stream",
                                                "expected a place, got none");
    epoch_ = state.at("epoch").integer();
    at_ = state.at("at").integer();
  }
  std::int64_t num_read() const { return read_; }
  std::int64_t num_skipped() const { return skipped_; }
  std::int64_t num_snapshots() const { return snapshots_; }

 private:
  std::int64_t size_;
  std::function<void(std::int64_t)> before_job_;
  std::int64_t epoch_ = 0;
  std::int64_t at_ = 0;
  std::atomic<std::int64_t> read_ = 0;
  std::atomic<std::int64_t> skipped_ = 0;
  mutable std::atomic<std::int64_t> snapshots_ = 0;  // tests look while workers read
};

inline Numbers counting(std::int64_t size, std::int64_t from = 0) {
  Numbers out(static_cast<std::size_t>(size));
  std::iota(out.begin(), out.end(), from);
  return out;
}

/// The records of the rest of the epoch.
inline Numbers drain(data::Loader<Records>& loader) {
  Numbers out;
  while (loader.next()) {
    const Numbers& values = loader.batch().values;
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

}  // namespace loader_test
