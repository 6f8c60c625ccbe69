// The loader: batches of type B from a dataset or a stream.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/data/loader_base.hpp>
#include <danling/data/source.hpp>

namespace danling::inline v0::data {

/// Batches one after another, read in the calling thread. By itself: `for (Batch& batch : loader)` runs one epoch,
/// the next one each time.
template <class B>
class Loader : public LoaderBase {
  static_assert(BatchType<B>,
                "a batch type needs std::int64_t size() const (or a free batch_size(const B&) beside it) and "
                "B to(c10::Device) const (or a free to_device(B, c10::Device)), and must be movable");

 public:
  /// @throws ConfigError when an option does not fit, StateError when `source` is empty.
  explicit Loader(Source<B> source, LoaderOptions options = {})
      : LoaderBase(size_of(source), std::move(options)), source_(std::move(source)) {}

  const Source<B>& source() const { return source_; }

  /// The current batch; the caller may change it or move from it. @throws StateError when there is none.
  B& batch() {
    if (!batch_) [[unlikely]] {
      fail<StateError>("data.loader", "expected a current batch, got none: call next() first");
    }
    return *batch_;
  }

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = B;
    using difference_type = std::ptrdiff_t;
    using pointer = B*;
    using reference = B&;

    Iterator() = default;
    explicit Iterator(Loader* loader) : loader_(loader) { ++*this; }
    B& operator*() const { return loader_->batch(); }
    Iterator& operator++() {
      loader_ = loader_->next() ? loader_ : nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(const Iterator&) const = default;

   private:
    Loader* loader_ = nullptr;
  };

  /// Begins the epoch that was loaded, or that was started but not read from, else the one after the last.
  Iterator begin() {
    start_upcoming_epoch();
    return Iterator(this);
  }
  Iterator end() { return {}; }

 private:
  static std::optional<std::int64_t> size_of(const Source<B>& source) {
    check<StateError>(static_cast<bool>(source), "data.loader", "expected a dataset or a stream, got an empty source");
    return source.size();
  }

  std::int64_t fetch(std::span<const std::int64_t> indices) override {
    batch_.reset();  // first, so that the new batch can have its memory
    BatchInfo info;
    info.indices.assign(indices.begin(), indices.end());
    batch_.emplace(source_.dataset()->read(indices, info));
    return data::batch_size(*batch_);
  }
  std::int64_t fetch_ahead(std::int64_t num_samples) override {
    ahead_ = source_.stream()->next(num_samples);
    return ahead_ ? data::batch_size(*ahead_) : 0;
  }
  void take_ahead() override { batch_ = std::exchange(ahead_, std::nullopt); }
  void drop() override {
    batch_.reset();
    ahead_.reset();
  }
  void reset_stream(std::int64_t epoch) override { source_.stream()->reset(epoch); }
  State stream_state() const override { return source_.stream()->state_dict(); }
  void load_stream_state(const State& state) override { source_.stream()->load_state_dict(state); }

  Source<B> source_;
  std::optional<B> batch_;
  std::optional<B> ahead_;
};

}  // namespace danling::inline v0::data
