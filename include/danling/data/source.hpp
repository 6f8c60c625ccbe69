// Source of a split's batches: a dataset or a stream.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <danling/data/dataset_adapter.hpp>
#include <danling/data/stream_adapter.hpp>

namespace danling::inline v0::data {

namespace detail {
template <class T>
struct pointee {};
template <class T>
struct pointee<std::shared_ptr<T>> {
  using type = T;
};
template <class P, class Base>
concept SharedOf = requires { requires std::derived_from<typename pointee<P>::type, Base>; };

template <class T, class B>
concept DatasetOf = DatasetLike<T> && requires { requires std::same_as<batch_of<T>, B>; };
template <class T, class B>
concept StreamOf = StreamLike<T> && requires { requires std::same_as<stream_batch_of<T>, B>; };
}  // namespace detail

/// Types that convert to a `Source<B>`: a shared pointer to a `Dataset<B>` or `Stream<B>`, or an object that satisfies
/// the concept of either.
template <class T, class B>
concept SourceOf = detail::SharedOf<T, Dataset<B>> || detail::SharedOf<T, Stream<B>> || detail::DatasetOf<T, B> ||
                   detail::StreamOf<T, B>;

namespace detail {
template <class T>
concept Shared = requires { typename pointee<T>::type; };

/// Fails to compile, with the reason, if `T` is not a source of batches of type `B`.
template <class T, class B>
constexpr bool require_source() {
  if constexpr (Shared<T>) {
    static_assert(SourceOf<T, B>,
                  "a std::shared_ptr must point to a danling::data::Dataset<B> or Stream<B>, with the B of this map "
                  "or loader; danling::data::make_dataset and make_stream return such pointers");
  } else if constexpr (DatasetLike<T> || StreamLike<T>) {
    static_assert(SourceOf<T, B>,
                  "the data has batches of another type than this map or loader accepts: it must be the B of "
                  "`danling::BasicTorchRunner<B>` or `danling::data::Loader<B>` (a TorchRunner's is danling::Batch)");
  } else if constexpr (Yields<T> || Restartable<T>) {
    require_stream<T>();
  } else {
    require_dataset<T>();
  }
  return true;
}
}  // namespace detail

/// A shared handle to a dataset or a stream of batches of type `B`; empty by default.
template <class B>
class Source {
 public:
  Source() = default;

  template <class T>
    requires(!std::same_as<std::remove_cvref_t<T>, Source> && SourceOf<std::remove_cvref_t<T>, B>)
  Source(T&& from) {  // NOLINT(google-explicit-constructor)
    set(std::forward<T>(from));
  }

  template <class T>
    requires(!std::same_as<std::remove_cvref_t<T>, Source>)
  Source& operator=(T&& from) {
    static_assert(detail::require_source<std::remove_cvref_t<T>, B>());
    set(std::forward<T>(from));
    return *this;
  }

  explicit operator bool() const { return dataset_ != nullptr || stream_ != nullptr; }
  bool is_stream() const { return stream_ != nullptr; }
  /// Null for a stream.
  const std::shared_ptr<Dataset<B>>& dataset() const { return dataset_; }
  /// Null for a dataset.
  const std::shared_ptr<Stream<B>>& stream() const { return stream_; }

  /// The address of the dataset or stream, shared by copies of the source; null without one.
  const void* identity() const {
    return dataset_ != nullptr ? static_cast<const void*>(dataset_.get()) : static_cast<const void*>(stream_.get());
  }

  /// Number of records; nullopt for a stream.
  std::optional<std::int64_t> size() const {
    return dataset_ != nullptr ? std::optional<std::int64_t>(dataset_->size()) : std::nullopt;
  }
  std::string split() const {
    return dataset_ != nullptr ? dataset_->split() : stream_ != nullptr ? stream_->split() : std::string();
  }
  bool train() const { return dataset_ != nullptr ? dataset_->train() : stream_ != nullptr && stream_->train(); }
  LoaderDefaults loader_defaults() const {
    return dataset_ != nullptr  ? dataset_->loader_defaults()
           : stream_ != nullptr ? stream_->loader_defaults()
                                : LoaderDefaults();
  }

 private:
  template <class T>
  void set(T&& from) {
    using From = std::remove_cvref_t<T>;
    std::shared_ptr<Dataset<B>> dataset;
    std::shared_ptr<Stream<B>> stream;
    if constexpr (detail::SharedOf<From, Dataset<B>>) {
      dataset = std::forward<T>(from);
    } else if constexpr (detail::SharedOf<From, Stream<B>>) {
      stream = std::forward<T>(from);
    } else if constexpr (detail::DatasetOf<From, B>) {
      dataset = make_dataset<From>(std::forward<T>(from));
    } else if constexpr (detail::StreamOf<From, B>) {
      stream = make_stream<From>(std::forward<T>(from));
    }
    dataset_ = std::move(dataset);
    stream_ = std::move(stream);
  }

  std::shared_ptr<Dataset<B>> dataset_;
  std::shared_ptr<Stream<B>> stream_;
};

}  // namespace danling::inline v0::data
