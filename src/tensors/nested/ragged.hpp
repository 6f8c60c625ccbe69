// Sizes of the elements along their ragged dimensions, and the rows of each element.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::detail {

/// Immutable; shared by all tensors that operators per token make from another. An element of sizes (h, w) along two
/// ragged dimensions has h * w rows. Index tensors are created at first use, once per device. Thread-safe.
class Ragged {
 public:
  /// `sizes`: element by element, along each of `rank` ragged dimensions. Elements of rank 0 are scalars with one row.
  Ragged(std::int64_t batch, std::size_t rank, std::vector<std::int64_t> sizes);

  std::int64_t batch() const { return static_cast<std::int64_t>(offsets_.size()) - 1; }
  std::size_t rank() const { return longest_.size(); }
  std::int64_t rows() const { return offsets_.back(); }
  /// Sizes of one element, `rank()` of them.
  std::span<const std::int64_t> sizes(std::int64_t element) const;
  const std::vector<std::int64_t>& all_sizes() const { return sizes_; }
  std::int64_t begin(std::int64_t element) const { return offsets_[static_cast<std::size_t>(element)]; }
  std::int64_t rows_of(std::int64_t element) const { return begin(element + 1) - begin(element); }
  const std::vector<std::int64_t>& offsets() const { return offsets_; }
  /// Largest size along each ragged dimension; 0 in an empty batch.
  const std::vector<std::int64_t>& longest() const { return longest_; }
  /// Rows of an element padded to the longest sizes.
  std::int64_t padded_rows() const;

  /// First row of each element, and the number of rows: int64 of batch + 1 values.
  at::Tensor offsets_on(at::Device device) const;
  /// Offsets of the non-empty elements: int32, as attention kernels expect.
  at::Tensor starts_on(at::Device device) const;
  /// Element index of each row: int64.
  at::Tensor elements_on(at::Device device) const;
  /// Index of each row among the padded rows of all elements: int64.
  at::Tensor padded_places_on(at::Device device) const;
  at::Tensor local_places_on(at::Device device) const;

  /// Returns a related structure, whose elements are parts or combinations of these. `make` creates it at the first
  /// call with this number.
  std::shared_ptr<const Ragged> related(std::int64_t number,
                                        const std::function<std::shared_ptr<const Ragged>()>& make) const;
  /// Number of the structure with each length twice: one square per sequence, as in attention scores.
  static constexpr std::int64_t square = 0;
  /// Call it directly after construction: makes the structure that this one was made from available under the number
  /// while it lives.
  void set_origin(std::int64_t number, const std::shared_ptr<const Ragged>& origin);

  bool operator==(const Ragged& other) const {
    return rank() == other.rank() && sizes_ == other.sizes_ && batch() == other.batch();
  }

 private:
  enum class Index { offsets, starts, elements, padded_places, local_places };
  at::Tensor index_on(Index kind, at::Device device) const;
  at::Tensor make_index(Index kind) const;

  std::vector<std::int64_t> sizes_, offsets_, longest_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<Index, std::pair<int, int>>, at::Tensor> indices_;  ///< by device type and index
  mutable std::map<std::int64_t, std::shared_ptr<const Ragged>> related_;
  std::int64_t origin_number_ = 0;
  std::weak_ptr<const Ragged> origin_;
};

using RaggedPtr = std::shared_ptr<const Ragged>;

/// Returns true if both describe the same sizes.
inline bool same(const RaggedPtr& a, const RaggedPtr& b) { return a == b || *a == *b; }

}  // namespace danling::inline v0::detail
