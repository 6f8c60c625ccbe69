// A reduction over dimensions of the tensor, as steps on packed values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tensors/nested/call.hpp"
#include "tensors/nested/segments.hpp"

namespace danling::inline v0::detail {

/// As DanLing counts: the batch dimension alone means each whole element, and together with others it means the same
/// positions of all elements.
class ReductionPlan {
 public:
  /// `dims` of the tensor; without any, all of them.
  ReductionPlan(Call& call, const NestedTensorImpl& impl, const std::vector<std::int64_t>& dims, bool keepdim);

  /// Static dimensions alone: one call on the values, with `values_dims()`.
  bool is_packed() const { return !over_batch_ && ragged_.empty(); }
  /// All rows become one: also one call, with dimension 0 among `values_dims()`.
  bool is_over_all_rows() const { return over_batch_ && kept_ragged_.empty(); }
  /// The batch dimension alone.
  bool is_per_element() const { return per_element_; }
  bool is_nested() const { return !over_batch_ && !kept_ragged_.empty(); }
  /// Whether the batch is the first dimension of the result. As with any tensor, the dimensions that are left keep
  /// their order: without that of (length, batch, ...) which was before it, the batch comes first.
  bool batch_leads() const;
  /// Of a nested result.
  Structure kept_structure() const;
  /// Ascending.
  std::vector<std::int64_t> values_dims() const;

  /// Else: groups of rows. Reduced static dimensions go into the rows first.
  at::Tensor rows(const at::Tensor& values) const;
  Segments segments(at::Device device) const;

  /// The reduced values, without the reduced dimensions, as a tensor: nested where a ragged dimension stays.
  at::Tensor finish(const at::Tensor& reduced) const;

 private:
  std::vector<std::int64_t> kept_sizes(std::int64_t element) const;

  const NestedTensorImpl& impl_;
  bool keepdim_, over_batch_ = false, per_element_ = false;
  std::vector<std::int64_t> reduced_, ragged_, static_;  ///< dimensions of an element: all that go, by kind
  std::vector<std::int64_t> kept_ragged_, kept_static_;
};

}  // namespace danling::inline v0::detail
