// A batch of tensors of different lengths, stored without padding, that torch::nn modules accept directly.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

namespace danling::inline v0 {

namespace detail {
/// A dispatch key in front of all LibTorch kernels, on every device. docs/tensors/nested_design.md explains the choice.
inline constexpr c10::DispatchKey nested_key = c10::DispatchKey::PrivateUse2;

/// Converts types as torch::tensor does: int to int64, double to the default dtype. at::tensor does not convert, and
/// accepts no bool.
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
  /// Dtype and device of the values; by default the common dtype of the elements, and their device.
  std::optional<at::ScalarType> dtype = std::nullopt;
  std::optional<at::Device> device = std::nullopt;
  /// By default elements that require gradients receive those of the result. If set, also to true, the result is a
  /// leaf, whose gradients do not reach the elements.
  std::optional<bool> requires_grad = std::nullopt;
  bool pin_memory = false;
  /// True: sizes are (batch, length, ...). False: (length, batch, ...), as sequence-first modules expect.
  bool batch_first = true;
  /// Value of the padding in `tensor()`.
  double padding_value = 0;
  /// Value of the padding in `mask()`; valid positions have the opposite value.
  bool mask_value = false;
  /// Ragged dimensions, counted in an element; they stay ragged even if all sizes are equal. By default the dimensions
  /// whose sizes differ, or dimension 0 if none differ.
  std::optional<std::vector<std::int64_t>> ragged_dims = std::nullopt;
};

/// Sequences of different lengths as one tensor. Its sizes are those of the padded tensor; its values are packed,
/// without padding. Operators per token run on the packed values; operators along a sequence use its length. An
/// operator that has no meaning for ragged sequences throws an error with its name: see the table in
/// docs/tensors/nested_operators.md and the guide in docs/tensors/nested.md. A NestedTensor is an at::Tensor and copies
/// like a handle; operators return nested tensors (`NestedTensor y(linear(x))`).
///
/// Differentiable. Several threads may read it, as with other tensors. (DanLing: NestedTensor)
class NestedTensor : public at::Tensor {
 public:
  /// An empty batch.
  NestedTensor() : NestedTensor(std::vector<at::Tensor>()) {}
  /// Copies elements of equal rank and device. The dimensions whose sizes differ are ragged, or dimension 0 if none
  /// differ.
  /// @throws DataError for different ranks, undefined or nested elements, and, unless `options.device` is set,
  /// different devices
  explicit NestedTensor(const std::vector<at::Tensor>& elements, const NestedTensorOptions& options = {});
  /// `NestedTensor({a, b})`. `NestedTensor({a})` is a batch of one element, but `NestedTensor({nested})` with one
  /// nested tensor is a handle to it.
  explicit NestedTensor(std::initializer_list<at::Tensor> elements);
  explicit NestedTensor(std::initializer_list<at::Tensor> elements, const NestedTensorOptions& options)
      : NestedTensor(std::vector<at::Tensor>(elements), options) {}
  /// A handle to an existing nested tensor.
  /// @throws DataError when `nested` is not a nested tensor
  explicit NestedTensor(at::Tensor nested);
  /// One-dimensional elements; dtype as by torch::tensor. NestedTensor({{1, 2, 3}, {4, 5}}) is int64.
  template <class T>
  explicit NestedTensor(std::initializer_list<std::initializer_list<T>> elements,
                        const NestedTensorOptions& options = {})
      : NestedTensor(to_tensors(elements), options) {}

  /// Returns true for a NestedTensor, also behind an at::Tensor; false for nested tensors of LibTorch.
  static bool is_nested(const at::Tensor& tensor) {
    return tensor.defined() && tensor.unsafeGetTensorImpl()->key_set().has(detail::nested_key);
  }

  /// Returns a tensor padded with `padding_value`: (batch, longest, ...), or (longest, batch, ...) unless
  /// `batch_first`. Differentiable.
  at::Tensor tensor() const;
  /// Returns a boolean mask of the valid positions, of the sizes of `tensor()`, without the last dimension if that is
  /// static.
  at::Tensor mask() const;
  /// Returns the packed values, (rows, static sizes...), which share memory with this tensor.
  at::Tensor concat() const;
  std::pair<at::Tensor, at::Tensor> tensor_mask() const { return {tensor(), mask()}; }

  /// Returns the packed values and the sizes of each element.
  std::pair<at::Tensor, std::vector<std::vector<std::int64_t>>> concatenate() const;
  /// Makes a tensor of packed values, (rows, static sizes...), without a copy; `shapes` lists the sizes of each
  /// element.
  /// @throws DataError when values and shapes do not match
  static NestedTensor from_concatenated(const at::Tensor& values, const std::vector<std::vector<std::int64_t>>& shapes,
                                        const NestedTensorOptions& options = {});
  /// Packs the valid positions of a padded tensor; `options.mask_value` marks padding in `mask`. A one-dimensional mask
  /// selects elements. Waits for the device, since the sizes depend on the mask.
  /// @throws DataError when the mask's shape does not fit, valid positions do not come first, or the mask is not
  /// boolean (with several dimensions also: or integral)
  static NestedTensor from_tensor_mask(const at::Tensor& padded, const at::Tensor& mask,
                                       const NestedTensorOptions& options = {});
  /// Packs a padded tensor of this tensor's sizes with this tensor's lengths, on this tensor's device. Without
  /// `strict`, larger sizes are cut, and smaller sizes shorten the elements. If `tensor` is nested already, returns a
  /// copy with its own lengths.
  /// @throws DataError for another batch size, and for other sizes if `strict`
  NestedTensor nested_like(const at::Tensor& tensor, bool strict = true) const;

  /// Number of elements.
  std::int64_t batch_size() const;
  /// Returns the first row of each element and the number of rows: int64 of batch + 1 values, on the tensor's device.
  at::Tensor offsets() const;
  /// Returns the sizes of each element.
  std::vector<std::vector<std::int64_t>> shapes() const;
  /// Returns views of the elements: `for (const at::Tensor& element : nested.elements())`.
  std::vector<at::Tensor> elements() const;
  /// Returns a view of one element; -1 is the last. The index always counts elements, also if the batch is dimension 1:
  /// there `select(0, 0)` returns the first token of each. (DanLing: nested[0])
  at::Tensor operator[](std::int64_t element) const;
  /// Returns the share of the padded tensor that is not padding, from 0 to 1; 0 if it is empty.
  double occupancy() const;

  /// Replaces an element by one of any length. Changes the sizes of this tensor and of all its handles.
  /// @throws DataError when `value` has another number of dimensions
  void set(std::int64_t element, const at::Tensor& value);
  /// Writes to a part of each selected element. The first index selects elements (a number, a slice, a list or a mask
  /// of the batch); further indices select the part. `value` broadcasts to each part; a NestedTensor provides one value
  /// per selected element. With one index and a NestedTensor, replaces whole elements as `set` above. Include
  /// <ATen/TensorIndexing.h> for the indices.
  void set(std::initializer_list<at::indexing::TensorIndex> index, const at::Tensor& value);

  /// As at::Tensor::index_put_, but an integer along a ragged dimension writes to each element:
  /// `x.index_put_({Slice(), 0}, value)` writes to every first token. (at::Tensor's would write to a copy.)
  /// @throws DataError when such an integer is combined with anything but integers, slices of the batch and whole
  /// dimensions
  at::Tensor& index_put_(at::ArrayRef<at::indexing::TensorIndex> indices, const at::Tensor& value);
  at::Tensor& index_put_(std::initializer_list<at::indexing::TensorIndex> indices, const at::Tensor& value);
  at::Tensor& index_put_(at::ArrayRef<at::indexing::TensorIndex> indices, const at::Scalar& value);
  at::Tensor& index_put_(std::initializer_list<at::indexing::TensorIndex> indices, const at::Scalar& value);
  using at::Tensor::index_put_;

  /// Returns the values of each element in row-major order; `shapes()` returns their sizes. Copies to the host.
  /// (DanLing: tolist)
  template <class T>
  std::vector<std::vector<T>> tolist() const {
    std::vector<std::vector<T>> out;
    for (const at::Tensor& element : host_elements(c10::CppTypeToScalarType<T>::value)) {
      const T* begin = element.const_data_ptr<T>();
      out.emplace_back(begin, begin + element.numel());
    }
    return out;
  }
  /// Copies to a nested tensor of LibTorch with strided layout; the jagged layout exists in Python only.
  at::Tensor to_torch_nested() const;

  /// Returns true if both have equally many elements with equal sizes along the ragged dimensions. Reads no device
  /// memory.
  bool has_lengths_of(const NestedTensor& other) const;
  /// The ragged dimensions, counted in an element; ascending.
  std::vector<std::int64_t> ragged_dims() const;

  bool batch_first() const;
  double padding_value() const;
  bool mask_value() const;
  /// Return the same values with another setting; this tensor is unchanged. `with_batch_first` exchanges the first two
  /// dimensions.
  NestedTensor with_batch_first(bool batch_first) const;
  NestedTensor with_padding_value(double padding_value) const;
  NestedTensor with_mask_value(bool mask_value) const;

  /// Shares the values; `set` on the copy does not change this tensor.
  NestedTensor shallow_copy() const;
  /// Copies the values; the copy is a leaf that requires gradients if this tensor does.
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

/// Prints NestedTensor([...]) with elements in Python's format; of more than 10 elements only the first 5.
std::ostream& operator<<(std::ostream& out, const NestedTensor& tensor);

/// While an instance lives, operators that need one call per element throw DataError in this thread, with their names.
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
