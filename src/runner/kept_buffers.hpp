// A copy of a model's buffers from the start of a window; a skipped update restores them.
#pragma once

#include <vector>

#include <danling/runner/model.hpp>

namespace danling::inline v0::detail {

/// A skipped batch must leave no trace: batch normalization would keep its NaN in the running statistics. Copies all
/// buffers, since kernels that change them do not advance their version counters.
class BufferBackup {
 public:
  explicit BufferBackup(const ModelHandle& model);

  bool empty() const { return items_.empty(); }
  void keep();
  void restore() const;
  /// Restores only if `skipped`, on the model's device, is not 0. Does not synchronize.
  void restore(const at::Tensor& skipped) const;

 private:
  struct Item {
    at::Tensor buffer, kept;
  };
  std::vector<Item> items_;
};

}  // namespace danling::inline v0::detail
