// A batch of tensors of different lengths, stored without padding, that torch::nn modules take as they are.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/TensorIndexing.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

namespace danling::inline v0 {

namespace detail {
/// A key in front of all kernels of LibTorch, for every device. docs/tensors/nested_design.md says why this one.
inline constexpr c10::DispatchKey nested_key = c10::DispatchKey::PrivateUse2;

/// As torch::tensor makes it: int64 of int, the default type of double. at::tensor keeps these types, and takes no
/// bool.
template <class T>
at::Tensor tensor_of(at::ArrayRef<T> numbers) {
  if constexpr (std::is_same_v<T, bool>) {
    return at::tensor(std::vector<std::int64_t>(numbers.begin(), numbers.end())).to(at::kBool);
  } else if constexpr (std::is_same_v<T, int> || std::is_same_v<T, std::int64_t>) {
    return at::tensor(numbers, at::kLong);
  } else if constexpr (std::is_floating_point_v<T>) {
    return at::tensor(numbers, c10::get_default_dtype_as_scalartype());
  } else {
    return at::tensor(numbers);
  }
}
}  // namespace detail

struct NestedTensorOptions {
  /// Of the values; by default the common type of the elements, and their device.
  std::optional<at::ScalarType> dtype = std::nullopt;
  std::optional<at::Device> device = std::nullopt;
  /// By default it requires gradients if an element does.
  std::optional<bool> requires_grad = std::nullopt;
  bool pin_memory = false;
  /// Whether sizes are (batch, length, ...) instead of (length, batch, ...), as sequence-first modules expect.
  bool batch_first = true;
  /// Of `tensor()`.
  double padding_value = 0;
  /// Of padding in `mask()`; the valid positions have the other value.
  bool mask_value = false;
  /// Dimensions of an element that are ragged, also where all sizes along them are equal; by default those that differ,
  /// or else the first.
  std::optional<std::vector<std::int64_t>> ragged_dims = std::nullopt;
};

/// Sequences of different lengths as one tensor of LibTorch. Its sizes are those of the padded tensor; its values lie
/// packed, one behind the other. Operators that work per token run on the packed values, those along a sequence know
/// where each one ends, and the few without either meaning are refused by name: docs/tensors/nested_operators.md has
/// the table, docs/tensors/nested.md the guide. It is an at::Tensor with a handle's cost to copy; what an operator
/// returns is one too (`NestedTensor y(linear(x))`).
///
/// Differentiable. Safe to read from several threads, as tensors are. (DanLing: NestedTensor)
class NestedTensor : public at::Tensor {
 public:
  /// No elements.
  NestedTensor() : NestedTensor(std::vector<at::Tensor>()) {}
  /// Elements of one rank and device. The dimensions along which their sizes differ are ragged, or else the first one.
  /// The elements are copied.
  /// @throws DataError for elements of different ranks or devices
  explicit NestedTensor(const std::vector<at::Tensor>& elements, const NestedTensorOptions& options = {});
  /// NestedTensor({a, b}), also of one element: without this, NestedTensor({a}) would be the handle below. One nested
  /// tensor in braces is that handle.
  explicit NestedTensor(std::initializer_list<at::Tensor> elements);
  explicit NestedTensor(std::initializer_list<at::Tensor> elements, const NestedTensorOptions& options)
      : NestedTensor(std::vector<at::Tensor>(elements), options) {}
  /// @throws DataError when it is not a nested tensor
  explicit NestedTensor(at::Tensor nested);
  /// Elements of one dimension, of the type of torch::tensor: NestedTensor({{1, 2, 3}, {4, 5}}) is int64.
  template <class T>
  explicit NestedTensor(std::initializer_list<std::initializer_list<T>> elements,
                        const NestedTensorOptions& options = {})
      : NestedTensor(to_tensors(elements), options) {}

  static bool is_nested(const at::Tensor& tensor) {
    return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(detail::nested_key);
  }

  /// Padded with `padding_value`: (batch, longest, ...), or (longest, batch, ...) unless `batch_first`. Differentiable.
  at::Tensor tensor() const;
  /// Where `tensor()` has values: boolean, of its sizes, without the last dimension if that is static.
  at::Tensor mask() const;
  /// Packed values: (rows, static sizes...), which share memory with this tensor.
  at::Tensor concat() const;
  std::pair<at::Tensor, at::Tensor> tensor_mask() const { return {tensor(), mask()}; }

  /// The values, and the size of each element.
  std::pair<at::Tensor, std::vector<std::vector<std::int64_t>>> concatenate() const;
  static NestedTensor from_concatenated(const at::Tensor& values, const std::vector<std::vector<std::int64_t>>& shapes,
                                        const NestedTensorOptions& options = {});
  /// From a padded tensor and its mask, of which `options.mask_value` is padding. A mask of one dimension chooses
  /// elements. Waits for the device, since the sizes depend on the mask.
  /// @throws DataError when the mask's shape does not fit, or its valid positions do not come first
  static NestedTensor from_tensor_mask(const at::Tensor& padded, const at::Tensor& mask,
                                       const NestedTensorOptions& options = {});
  /// A padded tensor of this one's sizes with this one's lengths. Unless `strict`, larger sizes are cut and an element
  /// of smaller ones keeps what there is. A nested tensor is copied.
  /// @throws DataError for another batch, and for other sizes if `strict`
  NestedTensor nested_like(const at::Tensor& tensor, bool strict = true) const;

  /// Number of elements.
  std::int64_t batch_size() const;
  /// Rows of each element before the next begins: int64 of batch + 1, on the tensor's device.
  at::Tensor offsets() const;
  /// Sizes of the elements.
  std::vector<std::vector<std::int64_t>> shapes() const;
  /// Views of the elements: `for (const at::Tensor& element : nested.elements())`.
  std::vector<at::Tensor> elements() const;
  /// A view of one element, of the last one for -1. Not the first token where the batch is the second dimension: that
  /// is `select(0, 0)`. (DanLing: nested[0])
  at::Tensor operator[](std::int64_t element) const;
  /// The part of the padded tensor that has values; 0 of an empty one.
  double occupancy() const;

  /// Replaces an element by one of any length, which changes the sizes of this tensor and of all its copies by handle.
  /// @throws DataError when it has another number of dimensions
  void set(std::int64_t element, const at::Tensor& value);
  /// The first index chooses elements (a number, a slice, a list or mask of the batch), the others a part of each one.
  /// Without others, the elements are replaced by `value`'s, a NestedTensor, as by `set` above. Every `value` else is
  /// written to each chosen part, after broadcasting.
  void set(std::initializer_list<at::indexing::TensorIndex> index, const at::Tensor& value);

  /// As at::Tensor's, which writes to a copy where an integer chooses a position of each element along a ragged
  /// dimension: `x.index_put_({Slice(), 0}, value)` writes to the first token of each here.
  /// @throws DataError for other indices beside such an integer than integers, slices of the batch and whole dimensions
  at::Tensor& index_put_(at::ArrayRef<at::indexing::TensorIndex> indices, const at::Tensor& value);
  at::Tensor& index_put_(std::initializer_list<at::indexing::TensorIndex> indices, const at::Tensor& value) {
    return index_put_(at::ArrayRef<at::indexing::TensorIndex>(indices), value);
  }
  at::Tensor& index_put_(at::ArrayRef<at::indexing::TensorIndex> indices, const at::Scalar& value);
  at::Tensor& index_put_(std::initializer_list<at::indexing::TensorIndex> indices, const at::Scalar& value) {
    return index_put_(at::ArrayRef<at::indexing::TensorIndex>(indices), value);
  }
  using at::Tensor::index_put_;

  /// The values of each element, row by row. `shapes()` has their sizes. Copies to the host. (DanLing: tolist)
  template <class T>
  std::vector<std::vector<T>> tolist() const {
    std::vector<std::vector<T>> out;
    for (const at::Tensor& element : host_elements(c10::CppTypeToScalarType<T>::value)) {
      const T* begin = element.const_data_ptr<T>();
      out.emplace_back(begin, begin + element.numel());
    }
    return out;
  }
  /// LibTorch's own nested tensor, of the strided layout: the jagged one exists in Python only. Copies.
  at::Tensor to_torch_nested() const;

  /// Whether both have as many elements, of the same sizes along the ragged dimensions. Compares no memory of a device.
  bool has_lengths_of(const NestedTensor& other) const;
  /// Of an element, ascending.
  std::vector<std::int64_t> ragged_dims() const;

  bool batch_first() const;
  double padding_value() const;
  bool mask_value() const;
  /// The same values with another setting; this tensor keeps its own, since handles share it. The first one exchanges
  /// the first two dimensions.
  NestedTensor with_batch_first(bool batch_first) const;
  NestedTensor with_padding_value(double padding_value) const;
  NestedTensor with_mask_value(bool mask_value) const;

  /// The same values in a tensor with a structure of its own, which `set` changes by itself.
  NestedTensor shallow_copy() const;
  /// Values of its own, as a leaf that requires gradients if this tensor does.
  NestedTensor deep_copy() const;

  std::string to_string() const;

 private:
  std::vector<at::Tensor> host_elements(at::ScalarType type) const;
  template <class T>
  static std::vector<at::Tensor> to_tensors(std::initializer_list<std::initializer_list<T>> elements) {
    std::vector<at::Tensor> out;
    for (const std::initializer_list<T>& element : elements) {
      out.push_back(detail::tensor_of<T>(element));
    }
    return out;
  }
};

/// NestedTensor([...]) with the elements as Python prints tensors; of more than 10 elements the first 5.
std::ostream& operator<<(std::ostream& out, const NestedTensor& tensor);

/// While one lives, operators that would be called per element throw DataError in this thread, with their names.
class NoNestedFallback {
 public:
  NoNestedFallback();
  ~NoNestedFallback();
  NoNestedFallback(const NoNestedFallback&) = delete;
  NoNestedFallback& operator=(const NoNestedFallback&) = delete;

 private:
  bool before_;
};

}  // namespace danling::inline v0
