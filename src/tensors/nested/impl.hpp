// The tensor behind a NestedTensor: packed values, the sizes of the elements, and its place in autograd.
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

#include "tensors/nested/deferred.hpp"

namespace torch::autograd {
struct Node;
}

namespace danling::inline v0::detail {

inline constexpr c10::DispatchKey autograd_nested_key = c10::DispatchKey::AutogradPrivateUse2;

/// How packed values become elements. The values are (rows, static sizes...): the ragged dimensions of an element are
/// merged into its rows, in their order, and the static ones follow in theirs.
///
/// Two ways to count dimensions: those of an element begin with 0; those of the tensor have the batch at `batch_dim()`.
struct Structure {
  RaggedPtr ragged;
  c10::DimVector ragged_dims;  ///< of an element, ascending
  bool batch_first = true;     ///< else the batch is dimension 1, behind the first one of the elements
  double padding_value = 0;
  bool mask_value = false;  ///< of padding, in masks
  bool guessed = false;     ///< all sizes were equal, so the first dimension was taken for the ragged one

  std::int64_t batch() const { return ragged->batch(); }
  bool is_ragged(std::int64_t element_dim) const;
  /// Dimensions of an element with `values` of so many.
  std::int64_t element_rank(std::int64_t values_rank) const {
    return static_cast<std::int64_t>(ragged_dims.size()) + values_rank - 1;
  }
  std::int64_t batch_dim(std::int64_t element_rank) const { return batch_first || element_rank == 0 ? 0 : 1; }
  /// The dimension of an element; nothing for the batch. `dim` as in at::Tensor: from -rank to rank - 1.
  /// @throws DataError beyond these
  std::optional<std::int64_t> element_dim(std::int64_t dim, std::int64_t element_rank) const;
  /// The inverse.
  std::int64_t tensor_dim(std::int64_t element_dim, std::int64_t element_rank) const;
  /// Of the values, 1 or above, for a static dimension of the elements.
  std::int64_t values_dim(std::int64_t element_dim) const;
  /// Which ragged dimension this one is.
  std::size_t ragged_index(std::int64_t element_dim) const;
  /// Both describe the same elements but for sizes of static dimensions.
  bool matches(const Structure& other) const {
    return same(ragged, other.ragged) && ragged_dims == other.ragged_dims && batch_first == other.batch_first;
  }
};

class NestedTensorImpl final : public c10::TensorImpl {
 public:
  NestedTensorImpl(at::Tensor values, Structure structure);
  NestedTensorImpl(std::shared_ptr<Deferred> values, Structure structure);

  /// Without the history that the wrapper itself may have: see values_of. Computed now if they are deferred.
  const at::Tensor& values() const { return deferred_ == nullptr ? values_ : deferred_->values(); }
  /// Null unless it was made without values.
  const std::shared_ptr<Deferred>& deferred() const { return deferred_; }
  c10::IntArrayRef values_sizes() const { return deferred_ == nullptr ? values_.sizes() : deferred_->shape().sizes; }
  const Structure& structure() const { return structure_; }
  Structure& structure() { return structure_; }
  std::int64_t element_rank() const {
    return structure_.element_rank(static_cast<std::int64_t>(values_sizes().size()));
  }
  /// Sizes of one element.
  c10::DimVector element_sizes(std::int64_t element) const;
  void set_values(at::Tensor values);  ///< of the same shape
  void set_structure(at::Tensor values, Structure structure);

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_tensor_metadata_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_tensor_metadata_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) override;

  /// Where the values were gathered from another tensor: what is written to these in place is written there too.
  std::function<void(const at::Tensor& values)> write_back;
  const torch::autograd::Node* history = nullptr;  ///< the node that `wrap` gave it: its gradient is that of the values

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

/// Null for any other tensor.
inline NestedTensorImpl* nested(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(nested_key)
             ? static_cast<NestedTensorImpl*>(tensor.unsafeGetTensorImpl())
             : nullptr;
}

/// A nested tensor over the values, whose gradient flows into theirs.
at::Tensor wrap(at::Tensor values, Structure structure);
at::Tensor wrap(std::shared_ptr<Deferred> values, Structure structure);
/// The packed values, as a part of the graph of `tensor`.
at::Tensor values_of(const at::Tensor& tensor);
/// Whether autograd knows the wrapper by something else than its values: it is a leaf, a custom function made it, or
/// someone waits for its gradient.
bool has_own_history(const at::Tensor& tensor);
/// To be called before a change in place, which autograd could not record for a leaf.
/// @throws DataError for a leaf that requires gradients, where they are recorded
void expect_changeable(const at::Tensor& tensor, std::string_view operation);
/// After an operator has changed them in place.
void replace_values(const at::Tensor& tensor, at::Tensor values);
/// Takes the tensor out of the graph; it requires no gradients.
void forget_history(const at::Tensor& tensor);

/// Values of `padded`, which has the tensor's dimensions: its rows that are not padding. Differentiable, twice too.
at::Tensor pack(const at::Tensor& padded, const Structure& structure);
/// The tensor's dimensions, with `fill` where elements end. Differentiable with respect to the values.
at::Tensor pad(const at::Tensor& values, const Structure& structure, double fill);

/// Contiguous, with the numbers in memory: LibTorch can leave out zeros (in gradients of gradients), conjugation,
/// signs.
at::Tensor readable(const at::Tensor& plain);

/// Views of the elements' values.
std::vector<at::Tensor> elements_of(const at::Tensor& tensor);
at::Tensor element_of(const at::Tensor& tensor, std::int64_t element);
at::Tensor element_of(const at::Tensor& values, const Structure& structure, std::int64_t element);
/// Packs tensors of one rank; `ragged_dims` are those along which their sizes differ, unless they are given. `like`:
/// for the rest of the structure.
at::Tensor nest(const std::vector<at::Tensor>& elements, const Structure& like,
                std::optional<c10::DimVector> ragged_dims = std::nullopt);
/// The dimensions along which sizes differ; the first one where none do.
c10::DimVector find_ragged_dims(const std::vector<at::Tensor>& elements);

/// "(3, 4), (5, 4)": sizes of the elements, of which long lists show the first.
/// Made when it is read: most errors that would hold it do not occur.
class ShapesText {
 public:
  /// Of a plain tensor its shape; nothing without one.
  explicit ShapesText(const c10::TensorImpl* tensor) : tensor_(tensor) {}
  operator std::string_view() const;

 private:
  const c10::TensorImpl* tensor_;
  mutable std::string text_;
};
inline ShapesText text_of_shapes(const NestedTensorImpl& tensor) { return ShapesText(&tensor); }
inline ShapesText text_of_shapes(const at::Tensor& tensor) { return ShapesText(tensor.unsafeGetTensorImpl()); }
/// The end of an error about two tensors of different layouts, which their shapes do not show: where the batch is,
/// which dimensions are ragged. Empty if they agree.
std::string text_of_layouts(const NestedTensorImpl& one, const NestedTensorImpl& other);

}  // namespace danling::inline v0::detail
