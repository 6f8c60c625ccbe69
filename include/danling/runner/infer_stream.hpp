// Predictions of a split, batch by batch, as an input range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include <danling/data/loader_visit.hpp>

namespace danling::inline v0 {

class TorchRunnerBase;

namespace detail {
/// Iterates over a split, independent of the prediction type.
class InferBatches {
 public:
  InferBatches(TorchRunnerBase& runner, data::LoaderBase& loader, data::LoaderVisit visit,
               std::optional<std::int64_t> steps, std::string split)
      : runner_(&runner), loader_(&loader), visit_(std::move(visit)), steps_(steps), split_(std::move(split)) {}

  /// Infers the next batch into `prediction`, a std::optional of the runner's prediction type. Returns false at the
  /// end.
  bool next(void* prediction);

 private:
  TorchRunnerBase* runner_;
  data::LoaderBase* loader_;
  data::LoaderVisit visit_;
  std::optional<std::int64_t> steps_;
  std::string split_;
  std::int64_t done_ = 0;
};
}  // namespace detail

/// An input range of predictions of type `P`. Checks for a stop request at each batch, as the other loops do.
template <class P>
class BasicInferStream {
 public:
  explicit BasicInferStream(detail::InferBatches batches) : batches_(std::move(batches)) {}

  /// The prediction for the next batch; empty at the end.
  std::optional<P> next() {
    std::optional<P> prediction;
    batches_.next(&prediction);
    return prediction;
  }

  class iterator {
   public:
    using value_type = P;
    using difference_type = std::ptrdiff_t;
    explicit iterator(BasicInferStream& stream) : stream_(&stream), current_(stream.next()) {}
    const P& operator*() const { return *current_; }
    iterator& operator++() {
      // A type may be movable without being assignable.
      current_.reset();
      if (auto next = stream_->next()) {
        current_.emplace(*std::move(next));
      }
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !current_.has_value(); }

   private:
    BasicInferStream* stream_;
    std::optional<P> current_;
  };
  iterator begin() { return iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  detail::InferBatches batches_;
};

}  // namespace danling::inline v0
