// Default collation: stacks tensors, converts numbers to tensors, and recurses into containers.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/core/error.hpp>
#include <danling/state/state.hpp>
#include <danling/tensors/detail/containers.hpp>
#include <danling/tensors/detail/describe.hpp>

namespace danling::inline v0::data {

/// Thrown when samples do not form a batch because one differs from the first.
class CollateError : public DataError {
 public:
  CollateError(std::size_t sample, const std::string& message) : DataError(message), sample_(sample) {}
  ~CollateError() override;
  /// Index of the differing sample.
  std::size_t sample() const { return sample_; }

 private:
  std::size_t sample_;
};

namespace detail {
using danling::detail::Container;
using danling::detail::describe;
using danling::detail::Mapping;

[[noreturn]] void fail_collate(const std::string& path, std::size_t sample, const std::string& expected,
                               const std::string& got);
std::string below(const std::string& path, std::string_view name);
std::string below(const std::string& path, std::size_t index);

template <class T>
using Parts = std::vector<const T*>;

// Stacks the parts; undefined if all are undefined.
at::Tensor collate_parts(const Parts<at::Tensor>& parts, const std::string& path);
State collate_parts(const Parts<State>& parts, const std::string& path);
// Returns a tensor [N]: bool, int64, or the floating-point type unchanged.
at::Tensor numbers(const std::vector<bool>& values);
at::Tensor numbers(const std::vector<std::int64_t>& values);
at::Tensor numbers(const std::vector<double>& values);
at::Tensor numbers(const std::vector<float>& values);
template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
at::Tensor collate_parts(const Parts<T>& parts, const std::string&) {
  using Number = std::conditional_t<std::same_as<T, bool> || std::floating_point<T>, T, std::int64_t>;
  std::vector<Number> values;
  values.reserve(parts.size());
  for (const T* part : parts) {
    values.push_back(static_cast<Number>(*part));
  }
  return numbers(values);
}
inline std::vector<std::string> collate_parts(const Parts<std::string>& parts, const std::string&) {
  std::vector<std::string> texts;
  texts.reserve(parts.size());
  for (const std::string* part : parts) {
    texts.push_back(*part);
  }
  return texts;
}

/// The collated type of parts of type T.
template <class T>
struct CollatedOf {};
template <class T>
  requires std::same_as<T, at::Tensor> || std::is_arithmetic_v<T> || std::is_enum_v<T>
struct CollatedOf<T> {
  using type = at::Tensor;
};
template <>
struct CollatedOf<State> {
  using type = State;
};
template <>
struct CollatedOf<std::string> {
  using type = std::vector<std::string>;
};
template <class T>
using Collated = typename CollatedOf<T>::type;
template <class T>
concept Collatable = requires { typename CollatedOf<T>::type; };
template <Collatable T, class A>
  requires(!std::same_as<T, bool>)
struct CollatedOf<std::vector<T, A>> {
  using type = std::vector<Collated<T>>;
};
template <Collatable T, std::size_t n>
struct CollatedOf<std::array<T, n>> {
  using type = std::array<Collated<T>, n>;
};
template <Collatable T>
struct CollatedOf<std::optional<T>> {
  using type = std::optional<Collated<T>>;
};
template <Collatable... Ts>
struct CollatedOf<std::tuple<Ts...>> {
  using type = std::tuple<Collated<Ts>...>;
};
template <Collatable First, Collatable Second>
struct CollatedOf<std::pair<First, Second>> {
  using type = std::pair<Collated<First>, Collated<Second>>;
};
template <class K, Collatable T, class C, class A>
struct CollatedOf<std::map<K, T, C, A>> {
  using type = std::map<K, Collated<T>, C>;
};
template <class K, Collatable T, class H, class E, class A>
struct CollatedOf<std::unordered_map<K, T, H, E, A>> {
  using type = std::unordered_map<K, Collated<T>, H, E>;
};

template <class C>
  requires Container<C> && Collatable<C>
Collated<C> collate_parts(const Parts<C>& parts, const std::string& path);

/// Collates one part of each container; `get` returns a pointer to it.
template <class C, class Get>
auto collate_part(const Parts<C>& containers, const std::string& path, const Get& get) {
  Parts<std::remove_cvref_t<decltype(*get(*containers.front()))>> parts;
  parts.reserve(containers.size());
  for (const C* container : containers) {
    parts.push_back(get(*container));
  }
  return collate_parts(parts, path);
}

template <class C>
  requires Container<C> && Collatable<C>
Collated<C> collate_parts(const Parts<C>& parts, const std::string& path) {
  Collated<C> out;
  const C& first = *parts.front();
  if constexpr (requires { std::get<0>(first); }) {
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      ((std::get<i>(out) =
            collate_part(parts, below(path, i), [](const C& container) { return &std::get<i>(container); })),
       ...);
    }(std::make_index_sequence<std::tuple_size_v<C>>());
  } else if constexpr (requires { first.has_value(); }) {
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (parts[i]->has_value() != first.has_value()) {
        fail_collate(path, i, first ? "a value" : "none", first ? "none" : "a value");
      }
    }
    if (first) {
      out = collate_part(parts, path, [](const C& container) { return &*container; });
    }
  } else {
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (parts[i]->size() != first.size()) {
        fail_collate(path, i, danling::detail::concat(first.size(), " parts"),
                     danling::detail::concat(parts[i]->size()));
      }
    }
    if constexpr (Mapping<C>) {
      for (const auto& [key, value] : first) {
        const std::string place = below(path, danling::detail::concat(key));
        for (std::size_t i = 1; i < parts.size(); ++i) {
          if (parts[i]->find(key) == parts[i]->end()) {
            fail_collate(place, i, "a value", "none");
          }
        }
        const auto& name = key;  // a structured binding cannot be captured
        out.emplace(name, collate_part(parts, place, [&](const C& container) { return &container.at(name); }));
      }
    } else {
      for (std::size_t i = 0; i < first.size(); ++i) {
        out.push_back(collate_part(parts, below(path, i), [i](const C& container) { return &container[i]; }));
      }
    }
  }
  return out;
}
}  // namespace detail

/// Types that `default_collate` accepts: tensors, numbers, text, States, and standard containers of them.
template <class S>
concept DefaultCollatable = detail::Collatable<S>;

/// Collates samples by the rules of torch's default_collate: stacks tensors along a new first dimension; converts
/// bools, integers (to int64) and floating-point numbers to tensors [N], text and bytes to lists; collates vectors,
/// arrays, pairs, tuples, optionals, maps, and the lists, tuples and maps of a State part by part. (A `float` becomes
/// float32; Python's `float` is a double and becomes float64.)
/// @throws CollateError when a sample differs from the first in kind, dtype, shape, length or keys, with the place
/// (`boxes.left`), the sample and both values; DataError without samples.
template <DefaultCollatable S>
detail::Collated<S> default_collate(const std::vector<S>& samples, const std::string& path = {}) {
  danling::detail::check<DataError>(!samples.empty(), "data.collate", "expected at least one sample, got none");
  detail::Parts<S> parts;
  parts.reserve(samples.size());
  for (const S& sample : samples) {
    parts.push_back(&sample);
  }
  return detail::collate_parts(parts, path);
}

}  // namespace danling::inline v0::data
