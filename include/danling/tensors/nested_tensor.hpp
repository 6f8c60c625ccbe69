// A batch of tensors of different lengths, stored without padding, that torch::nn modules take as they are.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/TensorOptions.h>

namespace danling::inline v0 {

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
/// where each one ends, and the few without either meaning are refused by name: docs/nested.md has the table. It is an
/// at::Tensor with a handle's cost to copy; what an operator returns is one too (`NestedTensor y(linear(x))`).
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
  /// @throws DataError when it is not a nested tensor
  explicit NestedTensor(at::Tensor nested);
  /// Elements of one dimension: NestedTensor({{1, 2, 3}, {4, 5}}).
  template <class T>
  explicit NestedTensor(std::initializer_list<std::initializer_list<T>> elements,
                        const NestedTensorOptions& options = {})
      : NestedTensor(to_tensors(elements), options) {}

  static bool is_nested(const at::Tensor& tensor);

  /// Padded with `padding_value`: (batch, longest, ...), or (longest, batch, ...) unless `batch_first`. Differentiable.
  at::Tensor tensor() const;
  /// Where `tensor()` has values: boolean, of the batch and the ragged dimensions.
  at::Tensor mask() const;
  /// Packed values: (rows, static sizes...), which share memory with this tensor.
  at::Tensor concat() const;
  std::pair<at::Tensor, at::Tensor> tensor_mask() const { return {tensor(), mask()}; }

  /// The values, and the size of each element.
  std::pair<at::Tensor, std::vector<std::vector<std::int64_t>>> concatenate() const;
  static NestedTensor from_concatenated(const at::Tensor& values, const std::vector<std::vector<std::int64_t>>& shapes,
                                        const NestedTensorOptions& options = {});
  /// From a padded tensor and its mask, of which `options.mask_value` is padding.
  /// @throws DataError when the mask's shape does not fit, or its valid positions do not come first
  static NestedTensor from_tensor_mask(const at::Tensor& padded, const at::Tensor& mask,
                                       const NestedTensorOptions& options = {});
  /// A padded tensor of this one's sizes, or one of its rows, with this one's lengths.
  NestedTensor nested_like(const at::Tensor& tensor) const;

  /// Number of elements.
  std::int64_t batch_size() const;
  /// Rows of each element before the next begins: int64 of batch + 1, on the tensor's device.
  at::Tensor offsets() const;
  /// Sizes of the elements.
  std::vector<std::vector<std::int64_t>> shapes() const;
  /// Views of the elements.
  std::vector<at::Tensor> elements() const;

  /// Whether both have as many elements, of the same sizes along the ragged dimensions. Compares no memory of a device.
  bool has_lengths_of(const NestedTensor& other) const;
  /// Of an element, ascending.
  std::vector<std::int64_t> ragged_dims() const;

  bool batch_first() const;
  double padding_value() const;
  bool mask_value() const;

  std::string to_string() const;

 private:
  template <class T>
  static std::vector<at::Tensor> to_tensors(std::initializer_list<std::initializer_list<T>> elements) {
    std::vector<at::Tensor> out;
    for (const std::vector<T> element : elements) {
      out.push_back(at::tensor(element));
    }
    return out;
  }
};

/// NestedTensor([...]) with the elements as LibTorch prints them.
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
