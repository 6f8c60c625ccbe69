#include <runner/kept_buffers.hpp>

#include <unordered_set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>

namespace danling::inline v0::detail {

BufferBackup::BufferBackup(const ModelHandle& model) {
  std::unordered_set<const void*> seen;
  for (const auto& [name, parameter] : model.named_parameters()) {
    seen.insert(parameter.unsafeGetTensorImpl());
  }
  for (const auto& [name, tensor] : model.named_state()) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) {
      items_.push_back({.buffer = tensor, .kept = {}});
    }
  }
}

void BufferBackup::keep() {
  const at::NoGradGuard no_grad;
  for (Item& item : items_) {
    if (!item.kept.defined() || item.kept.device() != item.buffer.device()) {
      item.kept = at::empty_like(item.buffer);
    }
    item.kept.copy_(item.buffer, /*non_blocking=*/true);
  }
}

void BufferBackup::restore() const {
  const at::NoGradGuard no_grad;
  for (const Item& item : items_) {
    item.buffer.copy_(item.kept, /*non_blocking=*/true);
  }
}

void BufferBackup::restore(const at::Tensor& skipped) const {
  const at::NoGradGuard no_grad;
  for (const Item& item : items_) {
    item.buffer.copy_(at::where(skipped.to(item.buffer.device()).ne(0), item.kept, item.buffer));
  }
}

}  // namespace danling::inline v0::detail
