// Values that are computed at their first read: attention scores, which a fused kernel does not need.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/DimVector.h>

#include <tensors/nested/ragged.hpp>

namespace danling::inline v0::detail {

/// A plain tensor that an operator saves to read later. Copies a tensor without a version counter.
class UnchangedTensor {
 public:
  explicit UnchangedTensor(const at::Tensor& tensor);
  /// @throws DataError when the tensor has been changed in place since
  const at::Tensor& get(const char* operation) const;

 private:
  at::Tensor tensor_;
  std::optional<std::uint32_t> version_;
};

/// The attention that deferred values belong to: scale * queries * keys^T, before or after softmax and dropout.
struct AttentionScores {
  UnchangedTensor queries, keys;  ///< (rows, [heads,] size)
  RaggedPtr query_lengths, key_lengths;
  double scale = 1;
  bool normalized = false;
  double dropout = 0;
  /// True if a fused kernel dropped some of the weights; the dropped positions are unknown.
  std::shared_ptr<std::atomic<bool>> dropped_inside = std::make_shared<std::atomic<bool>>(false);
};

/// Deferred values of an operator's result. Computes them at most once, with the operator's gradient mode, inference
/// mode and stream. Thread-safe.
class Deferred {
 public:
  using Compute = std::function<at::Tensor()>;
  struct Shape {
    c10::DimVector sizes;
    caffe2::TypeMeta dtype;
    at::Device device;
  };
  /// `sources`: the plain tensors that the values depend on and that receive gradients.
  Deferred(Shape shape, std::vector<at::Tensor> sources, Compute compute,
           std::optional<AttentionScores> attention = std::nullopt);

  const Shape& shape() const { return shape_; }
  bool requires_grad() const { return requires_grad_; }
  const std::vector<at::Tensor>& sources() const { return sources_; }
  const std::optional<AttentionScores>& attention() const { return attention_; }

  bool is_computed() const { return is_computed_.load(std::memory_order_acquire); }
  const at::Tensor& values();
  /// Returns a function that computes `values()` for another deferred tensor, and throws if they have changed. In
  /// InferenceMode, which does not count changes, it recomputes them.
  /// @throws DataError when the values have been changed in place
  static Compute source_of_values(const std::shared_ptr<Deferred>& deferred);

 private:
  at::Tensor run(const Compute& compute) const;

  Shape shape_;
  std::vector<at::Tensor> sources_;
  std::shared_ptr<const Compute> compute_;
  std::optional<AttentionScores> attention_;
  bool grad_mode_, inference_, requires_grad_;
  std::optional<c10::Stream> stream_;
  std::mutex mutex_;
  std::atomic<bool> is_computed_ = false;
  at::Tensor values_;
  std::optional<UnchangedTensor> unchanged_;
};

}  // namespace danling::inline v0::detail
