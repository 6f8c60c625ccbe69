// Values by split, in insertion order.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>

namespace danling::inline v0::data {

/// An ordered map with few entries: lookup is linear, and references stay valid until `clear`.
template <class V>
class SplitMap {
 public:
  using value_type = std::pair<const std::string, V>;

  SplitMap();
  SplitMap(const SplitMap&) = default;
  SplitMap(SplitMap&&) = default;
  SplitMap& operator=(const SplitMap&) = default;
  SplitMap& operator=(SplitMap&&) = default;
  ~SplitMap();

  /// Returns the value of `split`; inserts one if missing.
  V& operator[](std::string_view split);

  /// Returns null if missing.
  const V* find(std::string_view split) const {
    for (const auto& entry : entries_) {
      if (entry.first == split) {
        return &entry.second;
      }
    }
    return nullptr;
  }
  V* find(std::string_view split) { return const_cast<V*>(std::as_const(*this).find(split)); }
  bool contains(std::string_view split) const { return find(split) != nullptr; }

  /// Returns the value of `split`. @throws ConfigError that lists the existing splits.
  const V& at(std::string_view split) const;
  V& at(std::string_view split) { return const_cast<V&>(std::as_const(*this).at(split)); }

  std::vector<std::string> names() const;

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  void clear() { entries_.clear(); }
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  std::deque<value_type> entries_;  // emplace_back leaves references valid
};

// Not in the class: the library has them compiled for the runner's default types.

template <class V>
SplitMap<V>::SplitMap() = default;

template <class V>
SplitMap<V>::~SplitMap() = default;

template <class V>
V& SplitMap<V>::operator[](std::string_view split) {
  V* found = find(split);
  return found != nullptr ? *found : entries_.emplace_back(std::string(split), V()).second;
}

template <class V>
const V& SplitMap<V>::at(std::string_view split) const {
  const V* found = find(split);
  if (found == nullptr) {
    const auto known = names();
    danling::detail::fail<ConfigError>("data.split",
                                       known.empty() ? "expected a split with a dataset, and there is none; got "
                                                     : danling::detail::concat("expected one of the splits [",
                                                                               danling::detail::join(known), "], got "),
                                       danling::detail::quote(split), danling::detail::did_you_mean(split, known));
  }
  return *found;
}

template <class V>
std::vector<std::string> SplitMap<V>::names() const {
  std::vector<std::string> out;
  for (const auto& entry : entries_) {
    out.push_back(entry.first);
  }
  return out;
}

}  // namespace danling::inline v0::data
