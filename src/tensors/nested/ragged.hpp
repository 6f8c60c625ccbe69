// Sizes of the elements of a nested tensor along their ragged dimensions, and where each element lies in its rows.
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

/// Immutable; shared by all tensors that an operation per token makes of another one. An element of sizes (h, w) along
/// two ragged dimensions has h * w rows. Index tensors are made at first use, once per device. Thread-safe.
class Ragged {
 public:
  /// `sizes`: of each element along each of `rank` ragged dimensions, element by element. Elements of rank 0 are
  /// scalars of one row.
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
  /// Largest size along each ragged dimension; 0 without elements.
  const std::vector<std::int64_t>& longest() const { return longest_; }
  /// Rows of an element that is padded to the longest sizes.
  std::int64_t padded_rows() const;

  /// First row of each element and the number of rows: int64 of batch + 1.
  at::Tensor offsets_on(at::Device device) const;
  /// As offsets, of the elements that have rows: int32, as attention's kernels take them.
  at::Tensor starts_on(at::Device device) const;
  /// Element of each row: int64.
  at::Tensor elements_on(at::Device device) const;
  /// Place of each row among the padded rows of all elements, and of its own: int64.
  at::Tensor padded_places_on(at::Device device) const;
  at::Tensor local_places_on(at::Device device) const;

  /// Another one, whose elements are parts of these or made of several: what `make` makes at the first call with this
  /// number.
  std::shared_ptr<const Ragged> related(std::int64_t number,
                                        const std::function<std::shared_ptr<const Ragged>()>& make) const;
  /// The number of the one with each length twice: sequences by themselves, as in attention's scores.
  static constexpr std::int64_t square = 0;
  /// At once after construction: the one that this was made of is found by this number while it lives.
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

/// Whether two describe the same sizes.
inline bool same(const RaggedPtr& a, const RaggedPtr& b) { return a == b || *a == *b; }

}  // namespace danling::inline v0::detail
