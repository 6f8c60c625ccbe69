// Buffers of models, such as running statistics: those of one rank on all ranks.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/distributed/group.hpp>
#include <danling/runner/model.hpp>

namespace danling::inline v0::detail {

class SharedBuffers {
 public:
  void add(const ModelHandle& model);
  /// Copies the buffers of `source` to all ranks: one message per dtype, none without buffers. Called by all ranks.
  void broadcast(const Group& group, int source);

 private:
  /// Buffers of one dtype, and what travels.
  struct Pack {
    std::vector<at::Tensor> buffers, views;
    at::Tensor flat;
  };
  std::vector<Pack> packs_;
};

}  // namespace danling::inline v0::detail
