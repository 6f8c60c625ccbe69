#include <runner/data_parallel_buffers.hpp>

#include <algorithm>
#include <set>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace danling::inline v0::detail {

SharedBuffers::SharedBuffers(const ModelHandle& model) {
  std::set<std::string, std::less<>> params;
  for (const auto& [name, tensor] : model.named_parameters()) {
    params.insert(name);
    params_.insert(tensor.unsafeGetTensorImpl());
  }
  for (const auto& [name, tensor] : model.named_state()) {
    if (params.contains(name) || tensor.numel() == 0) {
      continue;
    }
    auto pack = std::find_if(packs_.begin(), packs_.end(), [&, &buffer = tensor](const Pack& one) {
      return one.flat.scalar_type() == buffer.scalar_type() && one.flat.device() == buffer.device();
    });
    if (pack == packs_.end()) {
      pack = packs_.insert(pack, {{}, {}, at::empty({0}, tensor.options())});
    }
    pack->buffers.push_back(tensor);
  }
  for (Pack& pack : packs_) {
    std::int64_t size = 0;
    for (const at::Tensor& buffer : pack.buffers) {
      size += buffer.numel();
    }
    pack.flat = at::empty({size}, pack.flat.options());
    std::int64_t begin = 0;
    for (const at::Tensor& buffer : pack.buffers) {
      pack.views.push_back(pack.flat.narrow(0, begin, buffer.numel()).view(buffer.sizes()));
      begin += buffer.numel();
    }
  }
}

bool SharedBuffers::belong_to(const optim::Optimizer& optimizer) const {
  const auto& groups = optimizer.param_groups();
  return std::any_of(groups.begin(), groups.end(), [this](const auto& group) {
    return std::any_of(group.params.begin(), group.params.end(),
                       [this](const at::Tensor& param) { return params_.contains(param.unsafeGetTensorImpl()); });
  });
}

void SharedBuffers::broadcast(const Group& group, int source) {
  const at::NoGradGuard no_grad;
  for (Pack& pack : packs_) {
    const bool sends = group.rank() == source;
    for (std::size_t i = 0; sends && i < pack.buffers.size(); ++i) {
      pack.views[i].copy_(pack.buffers[i]);
    }
    group.broadcast(pack.flat, source);
    for (std::size_t i = 0; !sends && i < pack.buffers.size(); ++i) {
      pack.buffers[i].copy_(pack.views[i]);
    }
  }
}

}  // namespace danling::inline v0::detail
