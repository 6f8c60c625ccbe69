// Offsets of parts in their concatenation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

namespace detail {
class Offsets {
 public:
  /// @throws DataError without parts.
  explicit Offsets(const std::vector<std::int64_t>& sizes);

  std::int64_t size() const { return ends_.back(); }
  struct Place {
    std::size_t part;
    std::int64_t index;
  };
  /// @throws DataError when `index` is not in [0, size()).
  Place operator[](std::int64_t index) const;

  /// The records of a batch that one part has.
  struct Share {
    std::size_t part;
    std::vector<std::int64_t> indices;  // indices in the part
    std::vector<std::size_t> samples;   // positions in the batch
  };
  /// Returns the parts that have records of the batch, in order; for an empty batch the first part. @throws as
  /// `operator[]`.
  std::vector<Share> shares(std::span<const std::int64_t> indices) const;

 private:
  std::vector<std::int64_t> ends_;
};

/// Returns the split that all parts share, or an empty string.
std::string common_split(const std::vector<std::string>& splits);

template <class Parts>
std::string split_of_all(const Parts& parts) {
  std::vector<std::string> splits;
  for (const auto& part : parts) {
    splits.push_back(part->split());
  }
  return common_split(splits);
}
template <class Parts>
bool all_train(const Parts& parts) {
  return std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part->train(); });
}
template <class Parts>
std::int64_t most_random_layers(const Parts& parts) {
  std::int64_t most = 0;
  for (const auto& part : parts) {
    most = std::max(most, part->random_layers());
  }
  return most;
}
template <class Parts>
Offsets offsets_of(const Parts& parts) {
  std::vector<std::int64_t> sizes;
  for (const auto& part : parts) {
    sizes.push_back(part->size());
  }
  return Offsets(sizes);
}
}  // namespace detail

}  // namespace danling::inline v0::data
