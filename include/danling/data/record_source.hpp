// Single records by index, as combinators of datasets see them: objects or shared pointers to objects.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <danling/data/dataset_like.hpp>
#include <danling/data/record_stream.hpp>

namespace danling::inline v0::data {

namespace detail {
template <class T>
struct Pointee {
  using type = T;
};
template <class T>
struct Pointee<std::shared_ptr<T>> {
  using type = T;
};
template <class T>
using pointee_of = typename Pointee<T>::type;

template <class T>
T& object_of(T& object) {
  return object;
}
template <class T>
const T& object_of(const T& object) {
  return object;
}
template <class T>
T& object_of(std::shared_ptr<T>& object) {
  return *object;
}
template <class T>
T& object_of(const std::shared_ptr<T>& object) {
  return *object;
}
}  // namespace detail

/// `size()` and `get(index)` or `get(index, const SampleInfo&)`, in the type or in what it is a shared pointer to; no
/// `collate` is needed.
template <class T>
concept RecordSource = (detail::PlainSamples<detail::pointee_of<T>> ||
                        detail::InformedSamples<detail::pointee_of<T>>)&&detail::Sized<detail::pointee_of<T>>;

namespace detail {
template <RecordSource T>
using record_of = sample_of<pointee_of<T>>;

/// What a dataset above another says as that one does.
template <RecordSource T>
class RecordsAbove {
 public:
  explicit RecordsAbove(T base) : base_(std::move(base)) {}

  State source_info(std::int64_t index) const {
    if constexpr (requires {
                    { object_of(base_).source_info(index) } -> std::convertible_to<State>;
                  }) {
      return object_of(base_).source_info(index);
    } else {
      return {};
    }
  }
  std::optional<std::string> entry_key(std::int64_t index) const {
    if constexpr (requires {
                    { object_of(base_).entry_key(index) } -> std::convertible_to<std::optional<std::string>>;
                  }) {
      return object_of(base_).entry_key(index);
    } else {
      return std::nullopt;
    }
  }
  std::int64_t random_layers() const { return random_layers_of(object_of(base_)); }
  LoaderDefaults loader_defaults() const { return datum_defaults_of<pointee_of<T>, record_of<T>>(object_of(base_)); }
  std::string split() const { return split_of(object_of(base_)); }
  bool train() const { return train_of(object_of(base_)); }

 protected:
  std::int64_t base_size() const { return static_cast<std::int64_t>(object_of(base_).size()); }
  auto base_get(std::int64_t index, const SampleInfo& info) { return get_sample(object_of(base_), index, info); }
  pointee_of<T>& base() { return object_of(base_); }

 private:
  T base_;
};
}  // namespace detail

}  // namespace danling::inline v0::data
