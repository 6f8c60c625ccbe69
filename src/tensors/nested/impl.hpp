// Implementation of a NestedTensor: packed values, sizes of the elements, and its node in autograd.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/DimVector.h>

#include <danling/tensors/nested_tensor.hpp>

#include <tensors/nested/deferred.hpp>

namespace torch::autograd {
struct Node;
}

namespace danling::inline v0::detail {

inline constexpr c10::DispatchKey autograd_nested_key = c10::DispatchKey::AutogradPrivateUse2;

/// Layout of the elements in the packed values, (rows, static sizes...): the ragged dimensions of an element are merged
/// into rows in their order; the static dimensions follow in their order.
///
/// Dimensions are counted in an element, from 0, or in the tensor, with the batch at `batch_dim()`.
struct Structure {
  RaggedPtr ragged;
  c10::DimVector ragged_dims;  ///< counted in an element, ascending
  bool batch_first = true;     ///< else the batch is dimension 1, after the first dimension of the elements
  double padding_value = 0;
  bool mask_value = false;  ///< value of padding in masks
  bool guessed = false;     ///< all sizes were equal, so the first dimension was taken as ragged

  std::int64_t batch() const { return ragged->batch(); }
  bool is_ragged(std::int64_t element_dim) const;
  /// Returns the rank of an element whose values have this rank.
  std::int64_t element_rank(std::int64_t values_rank) const {
    return static_cast<std::int64_t>(ragged_dims.size()) + values_rank - 1;
  }
  std::int64_t batch_dim(std::int64_t element_rank) const { return batch_first || element_rank == 0 ? 0 : 1; }
  /// Converts a dimension of the tensor (from -rank to rank - 1) to one of an element; nullopt for the batch.
  /// @throws DataError out of this range
  std::optional<std::int64_t> element_dim(std::int64_t dim, std::int64_t element_rank) const;
  /// The inverse of element_dim.
  std::int64_t tensor_dim(std::int64_t element_dim, std::int64_t element_rank) const;
  /// Returns the dimension of the values (1 or above) for a static dimension of the elements.
  std::int64_t values_dim(std::int64_t element_dim) const;
  /// Returns the index among the ragged dimensions.
  std::size_t ragged_index(std::int64_t element_dim) const;
  /// Returns true if both describe the same elements, except for sizes of static dimensions.
  bool matches(const Structure& other) const {
    return same(ragged, other.ragged) && ragged_dims == other.ragged_dims && batch_first == other.batch_first;
  }
};

class NestedTensorImpl final : public c10::TensorImpl {
 public:
  NestedTensorImpl(at::Tensor values, Structure structure);
  NestedTensorImpl(std::shared_ptr<Deferred> values, Structure structure);

  /// Computes deferred values. Excludes history of the wrapper itself: see values_of.
  const at::Tensor& values() const { return deferred_ == nullptr ? values_ : deferred_->values(); }
  /// Null unless the values are deferred.
  const std::shared_ptr<Deferred>& deferred() const { return deferred_; }
  c10::IntArrayRef values_sizes() const { return deferred_ == nullptr ? values_.sizes() : deferred_->shape().sizes; }
  const Structure& structure() const { return structure_; }
  Structure& structure() { return structure_; }
  std::int64_t element_rank() const {
    return structure_.element_rank(static_cast<std::int64_t>(values_sizes().size()));
  }
  /// Sizes of one element.
  c10::DimVector element_sizes(std::int64_t element) const;
  void set_values(at::Tensor values);  ///< new values of the same shape
  void set_structure(at::Tensor values, Structure structure);

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_tensor_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) override;

  /// Set if the values were gathered from another tensor: writes in-place changes back to that tensor.
  std::function<void(const at::Tensor& values)> write_back;
  const torch::autograd::Node* history = nullptr;  ///< the node that `wrap` set, whose gradient is that of the values

 protected:
  std::int64_t numel_custom() const override;
  c10::SymInt sym_numel_custom() const override { return numel_custom(); }
  const char* tensorimpl_type_name() const override { return "NestedTensor"; }

 private:
  void finish_construction();
  void update_sizes();
  c10::intrusive_ptr<NestedTensorImpl> copy(bool allow_tensor_metadata_change) const;

  at::Tensor values_;
  std::shared_ptr<Deferred> deferred_;
  Structure structure_;
};

/// Returns null for other tensors.
inline NestedTensorImpl* nested(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(nested_key)
             ? static_cast<NestedTensorImpl*>(tensor.unsafeGetTensorImpl())
             : nullptr;
}

/// Wraps values in a nested tensor, whose gradient flows into them.
at::Tensor wrap(at::Tensor values, Structure structure);
at::Tensor wrap(std::shared_ptr<Deferred> values, Structure structure);
/// Returns the packed values, connected to the graph of `tensor`.
at::Tensor values_of(const at::Tensor& tensor);
/// Returns true if autograd tracks the wrapper other than by its values: it is a leaf, the result of a custom function,
/// or has a gradient hook.
bool has_own_history(const at::Tensor& tensor);
/// Call it before an in-place change: autograd cannot record one for a leaf.
/// @throws DataError for a leaf that requires gradients, in a mode that records them
void expect_changeable(const at::Tensor& tensor, std::string_view operation);
/// Call it after an operator has changed the values in place.
void replace_values(const at::Tensor& tensor, at::Tensor values);
/// Detaches the tensor; it then requires no gradients.
void forget_history(const at::Tensor& tensor);

/// Returns the rows of `padded`, which has the tensor's dimensions, without padding. Twice differentiable.
at::Tensor pack(const at::Tensor& padded, const Structure& structure);
/// Returns a tensor of the padded sizes, with `fill` after the end of each element. Differentiable with respect to the
/// values.
at::Tensor pad(const at::Tensor& values, const Structure& structure, double fill);

/// Returns a contiguous tensor with its numbers in memory, since LibTorch may leave out zeros (in gradients of
/// gradients), conjugation and signs.
at::Tensor readable(const at::Tensor& plain);

/// Returns views of the elements.
std::vector<at::Tensor> elements_of(const at::Tensor& tensor);
at::Tensor element_of(const at::Tensor& tensor, std::int64_t element);
at::Tensor element_of(const at::Tensor& values, const Structure& structure, std::int64_t element);
/// Packs tensors of one rank. `ragged_dims` defaults to the dimensions whose sizes differ; `like` provides the other
/// settings.
at::Tensor nest(const std::vector<at::Tensor>& elements, const Structure& like,
                std::optional<c10::DimVector> ragged_dims = std::nullopt);
/// Returns the dimensions whose sizes differ, or the first one if none differ.
c10::DimVector find_ragged_dims(const std::vector<at::Tensor>& elements);

/// Sizes of the elements as "(3, 4), (5, 4)"; long lists are cut. Built on conversion, so that checks that pass cost
/// nothing.
class ShapesText {
 public:
  /// The shape of a plain tensor; empty for null.
  explicit ShapesText(const c10::TensorImpl* tensor) : tensor_(tensor) {}
  operator std::string_view() const;

 private:
  const c10::TensorImpl* tensor_;
  mutable std::string text_;
};
inline ShapesText text_of_shapes(const NestedTensorImpl& tensor) { return ShapesText(&tensor); }
inline ShapesText text_of_shapes(const at::Tensor& tensor) { return ShapesText(tensor.unsafeGetTensorImpl()); }
/// Text to append to an error about two tensors whose layouts differ (batch dimension, ragged dimensions), which their
/// shapes do not show. Empty if they agree.
std::string text_of_layouts(const NestedTensorImpl& one, const NestedTensorImpl& other);

}  // namespace danling::inline v0::detail
