// Broadcasts the buffers of models, such as running statistics, from one rank to all.
#pragma once

#include <set>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>
#include <danling/optim/optimizer.hpp>
#include <danling/runner/model.hpp>

namespace danling::inline v0::detail {

/// The buffers of one model.
class SharedBuffers {
 public:
  explicit SharedBuffers(const ModelHandle& model);
  /// True when the optimizer updates parameters of the model.
  bool belong_to(const optim::Optimizer& optimizer) const;
  /// Copies the buffers of `source` to all ranks: one message per dtype, none without buffers. Called by all ranks.
  void broadcast(const Group& group, int source);

 private:
  /// Buffers of one dtype, and the tensor that is broadcast.
  struct Pack {
    std::vector<at::Tensor> buffers, views;
    at::Tensor flat;
  };
  std::vector<Pack> packs_;
  std::set<const c10::TensorImpl*> params_;
};

}  // namespace danling::inline v0::detail
