// Values that are computed when they are first read: attention's scores, which a fused kernel does not need.
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

#include "tensors/nested/ragged.hpp"

namespace danling::inline v0::detail {

/// A plain tensor at the time of an operator that reads it later. A tensor that counts no changes is copied.
class UnchangedTensor {
 public:
  explicit UnchangedTensor(const at::Tensor& tensor);
  /// @throws DataError when it has been changed in place since
  const at::Tensor& get(const char* operation) const;

 private:
  at::Tensor tensor_;
  std::optional<std::uint32_t> version_;
};

/// Which attention deferred values are a part of: scale * queries * keys^T, before or after softmax and dropout.
struct AttentionScores {
  UnchangedTensor queries, keys;  ///< (rows, [heads,] size)
  RaggedPtr query_lengths, key_lengths;
  double scale = 1;
  bool normalized = false;
  double dropout = 0;
  /// Whether a fused kernel dropped some of them: which ones, nobody knows.
  std::shared_ptr<std::atomic<bool>> dropped_inside = std::make_shared<std::atomic<bool>>(false);
};

/// Made by an operator instead of values. They are computed at most once, with the modes of gradients and of inference
/// and on the stream of the operator. Thread-safe.
class Deferred {
 public:
  using Compute = std::function<at::Tensor()>;
  struct Shape {
    c10::DimVector sizes;
    caffe2::TypeMeta dtype;
    at::Device device;
  };
  /// `sources`: plain tensors that the values depend on, to which gradients flow.
  Deferred(Shape shape, std::vector<at::Tensor> sources, Compute compute,
           std::optional<AttentionScores> attention = std::nullopt);

  const Shape& shape() const { return shape_; }
  bool requires_grad() const { return requires_grad_; }
  const std::vector<at::Tensor>& sources() const { return sources_; }
  const std::optional<AttentionScores>& attention() const { return attention_; }

  bool is_computed() const { return is_computed_.load(std::memory_order_acquire); }
  const at::Tensor& values();
  /// For another deferred tensor: `values()`, unless someone may have changed them since. They are computed anew where
  /// changes are not counted, in InferenceMode.
  /// @throws DataError when they have been changed in place
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
