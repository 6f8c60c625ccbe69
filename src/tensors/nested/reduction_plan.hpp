// Plans a reduction over dimensions of the tensor as steps on packed values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tensors/nested/call.hpp>
#include <tensors/nested/segments.hpp>

namespace danling::inline v0::detail {

/// As in DanLing, the batch dimension alone reduces each whole element; together with other dimensions it reduces equal
/// positions of all elements.
class ReductionPlan {
 public:
  /// `dims` are dimensions of the tensor; empty means all.
  ReductionPlan(Call& call, const NestedTensorImpl& impl, const std::vector<std::int64_t>& dims, bool keepdim);

  /// True if only static dimensions are reduced: one call on the values with `values_dims()`.
  bool is_packed() const { return !over_batch_ && ragged_.empty(); }
  /// True if all rows are reduced to one: also one call, with dimension 0 in `values_dims()`.
  bool is_over_all_rows() const { return over_batch_ && kept_ragged_.empty(); }
  /// True if only the batch dimension is reduced.
  bool is_per_element() const { return per_element_; }
  bool is_nested() const { return !over_batch_ && !kept_ragged_.empty(); }
  /// True if the batch is the first dimension of the result. The remaining dimensions keep their order: if the length
  /// of (length, batch, ...) is reduced, the batch comes first.
  bool batch_leads() const;
  /// Structure of a nested result.
  Structure kept_structure() const;
  /// Reduced dimensions of the values, ascending.
  std::vector<std::int64_t> values_dims() const;

  /// Otherwise, reduce groups of rows. Moves reduced static dimensions into the rows.
  at::Tensor rows(const at::Tensor& values) const;
  Segments segments(at::Device device) const;

  /// Returns the reduced values, without the reduced dimensions, as a tensor; nested if a ragged dimension remains.
  at::Tensor finish(const at::Tensor& reduced) const;

 private:
  std::vector<std::int64_t> kept_sizes(std::int64_t element) const;

  const NestedTensorImpl& impl_;
  bool keepdim_, over_batch_ = false, per_element_ = false;
  std::vector<std::int64_t> reduced_, ragged_, static_;  ///< reduced dimensions of an element: all, ragged, static
  std::vector<std::int64_t> kept_ragged_, kept_static_;
};

}  // namespace danling::inline v0::detail
