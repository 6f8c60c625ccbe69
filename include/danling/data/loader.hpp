// Loads batches of type B from a dataset or a stream.
#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <danling/core/error.hpp>
#include <danling/data/batch.hpp>
#include <danling/data/detail/source_reader.hpp>
#include <danling/data/loader_base.hpp>

namespace danling::inline v0::data {

/// Reads batches in order, in the calling thread or ahead of it in workers. Without a runner,
/// `for (Batch& batch : loader)` runs one epoch; the next loop runs the next epoch. Loaders may share a dataset.
/// Streams, samplers and batch samplers have a position, so each loader needs a separate one.
template <class B>
class Loader : public LoaderBase {
  static_assert(detail::require_batch<B>());

 public:
  /// @throws ConfigError for invalid options, DataError for a dataset without records, StateError when `source` is
  /// empty.
  explicit Loader(Source<B> source, LoaderOptions options = {});

  /// Rejects other types at compile time, with the reason.
  template <class T>
    requires(!std::derived_from<std::remove_cvref_t<T>, LoaderBase> && !std::convertible_to<T, Source<B>>)
  explicit Loader(T&&, LoaderOptions options = {}) : Loader(Source<B>(), std::move(options)) {
    static_assert(detail::require_source<std::remove_cvref_t<T>, B>());
  }

  const Source<B>& source() const { return source_; }

  /// Returns the current batch; the caller may change it or move from it. @throws StateError without a current batch.
  B& batch() { return *static_cast<detail::SourceSlot<B>&>(current()).batch; }

  /// Returns the metadata of sample `i` of the current batch, with the dataset's `source_info`.
  /// @throws StateError without a current batch, DataError when it has no such sample.
  Metadata metadata(std::int64_t i) const;

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

  /// Starts the loaded epoch unless it was finished, else an epoch that was started but not read, else the next epoch.
  Iterator begin() {
    start_upcoming_epoch();
    return Iterator(this);
  }
  Iterator end() { return {}; }

 private:
  static std::unique_ptr<detail::BatchReader> reader_of(const Source<B>& source, const LoaderOptions& options);

  Source<B> source_;
};

// Not in the class: the library has them compiled for the default Batch.

template <class B>
Loader<B>::Loader(Source<B> source, LoaderOptions options)
    : LoaderBase(reader_of(source, options), std::move(options), HasPinMemory<B>), source_(std::move(source)) {}

template <class B>
Metadata Loader<B>::metadata(std::int64_t i) const {
  const BatchInfo& info = this->info();
  danling::detail::check<DataError>(i >= 0 && i < static_cast<std::int64_t>(info.size()), "data.loader",
                                    "expected a sample in [0, ", info.size(), "), got ", i);
  Metadata out = info.metadata(static_cast<std::size_t>(i));
  if (!source_.is_stream()) {
    out.source_info = source_.dataset()->source_info(out.index);
    if (!out.entry_key) {
      out.entry_key = source_.dataset()->entry_key(out.index);
    }
  }
  return out;
}

template <class B>
std::unique_ptr<detail::BatchReader> Loader<B>::reader_of(const Source<B>& source, const LoaderOptions& options) {
  danling::detail::check<StateError>(static_cast<bool>(source), "data.loader",
                                     "expected a dataset or a stream, got an empty source");
  return std::make_unique<detail::SourceReader<B>>(source, options.pin_memory && detail::can_use_pinned_memory());
}

extern template class detail::SourceReader<Batch>;
extern template class Loader<Batch>;

namespace detail {
template <class B>
B batch_of_base(const Dataset<B>*);
template <class B>
B batch_of_base(const Stream<B>*);

template <class T>
struct SourceBatch {};
template <class T>
  requires requires { batch_of_base(std::declval<T*>()); }
struct SourceBatch<std::shared_ptr<T>> {
  using type = decltype(batch_of_base(std::declval<T*>()));
};
template <DatasetLike T>
struct SourceBatch<T> {
  using type = batch_of<T>;
};
template <StreamLike T>
  requires(!DatasetLike<T>)
struct SourceBatch<T> {
  using type = stream_batch_of<T>;
};
}  // namespace detail

/// The batch type of a source type.
template <class T>
using source_batch_of = typename detail::SourceBatch<T>::type;

/// `Loader loader(dataset, options)`: the batch type is that of the dataset or stream.
template <class T>
Loader(T, LoaderOptions = {}) -> Loader<source_batch_of<T>>;

}  // namespace danling::inline v0::data
