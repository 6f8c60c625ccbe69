// The buffers of a model at the beginning of a window, which a skipped update puts back.
#pragma once

#include <vector>

#include <danling/runner/model.hpp>

namespace danling::inline v0::detail {

/// A batch that is left out must leave no trace: batch normalization would keep its NaN in the running statistics.
/// Copies all buffers, since kernels that change them do not advance their version counters.
class KeptBuffers {
 public:
  explicit KeptBuffers(const ModelHandle& model);

  bool empty() const { return items_.empty(); }
  void keep();
  void restore() const;
  /// Only if `skipped`, on the device of the model, is not 0. Waits for nothing.
  void restore(const at::Tensor& skipped) const;

 private:
  struct Item {
    at::Tensor buffer, kept;
  };
  std::vector<Item> items_;
};

}  // namespace danling::inline v0::detail
