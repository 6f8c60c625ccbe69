#include <optim/memory.hpp>

#include <algorithm>
#include <cstdint>

#include <ATen/MemoryOverlap.h>

namespace danling::inline v0::optim::detail {

std::vector<std::size_t> find_overlapping(at::TensorList tensors) {
  struct Range {
    std::uintptr_t begin, end;
    std::size_t index;
  };
  static thread_local std::vector<Range> ranges;  // kept, so that a step does not allocate
  ranges.clear();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (!tensor.has_storage() || tensor.numel() == 0) {
      continue;
    }
    std::int64_t last = 0;
    for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
      last += (tensor.size(dim) - 1) * tensor.stride(dim);
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    ranges.push_back({begin, begin + (static_cast<std::uintptr_t>(last) + 1) * tensor.element_size(), i});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<std::size_t> out;
  std::uintptr_t end = 0;
  std::size_t first = 0;  // the first in the list among overlapping tensors
  for (const Range& range : ranges) {
    if (range.begin < end) {
      out.push_back(std::max(first, range.index));
      first = std::min(first, range.index);
    } else {
      first = range.index;
    }
    end = std::max(end, range.end);
  }
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

/// Parameters whose gradients may share memory. At most one object per thread at a time: keeps its lists between steps,
/// so that gradients that the program also holds cause no allocation.
class Sharing {
 public:
  Sharing() = default;
  ~Sharing() {
    params_.clear();
    grads_.clear();
  }
  Sharing(const Sharing&) = delete;
  Sharing& operator=(const Sharing&) = delete;

  void add(const at::Tensor& param) {
    at::Tensor& grad = param.mutable_grad();
    if (!grad.defined() || !grad.has_storage()) {
      return;
    }
    if (grad.is_neg() || grad.is_conj()) [[unlikely]] {  // kernels over lists refuse to change them
      grad = grad.detach().resolve_conj().resolve_neg();
    }
    if (at::has_internal_overlap(grad) == at::MemOverlap::Yes) [[unlikely]] {
      grad = grad.detach().clone(at::MemoryFormat::Contiguous);
    } else if (grad.use_count() > 1 || grad.storage().use_count() > 1) [[unlikely]] {
      params_.push_back(param);
      grads_.push_back(grad);
    }
  }

  void separate() const {
    if (grads_.size() > 1) {
      for (const std::size_t i : find_overlapping(grads_)) {
        params_[i].mutable_grad() = grads_[i].detach().clone();
      }
    }
  }

 private:
  static inline thread_local std::vector<at::Tensor> params_, grads_;
};

}  // namespace

void separate_gradients(const std::vector<at::Tensor>& params) {
  Sharing sharing;
  for (const auto& param : params) {
    sharing.add(param);
  }
  sharing.separate();
}

void separate_gradients(const std::vector<ParamGroup>& groups) {
  Sharing sharing;
  for (const auto& group : groups) {
    for (const auto& param : group.params) {
      sharing.add(param);
    }
  }
  sharing.separate();
}

}  // namespace danling::inline v0::optim::detail
