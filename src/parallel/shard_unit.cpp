#include "parallel/shard_unit.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>

#include "parallel/sharded_tensor.hpp"

namespace danling::inline v0::detail {

ShardUnit::ShardUnit(std::string name, const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                     const Group& group, const Group& replicas)
    : name_(std::move(name)), group_(group), replicas_(replicas) {
  const at::NoGradGuard no_grad;
  for (const auto& [parameter_name, parameter] : parameters) {
    const auto same =
        std::find_if(packs_.begin(), packs_.end(), [&, dtype = parameter.scalar_type()](const Pack& pack) {
          return parameters_[pack.members.front()].whole.scalar_type() == dtype;
        });
    Pack& pack = same == packs_.end() ? packs_.emplace_back() : *same;
    pack.members.push_back(parameters_.size());
    at::Tensor whole = detached_values(parameter);
    if (!whole.is_non_overlapping_and_dense() || whole.storage_offset() != 0 ||
        whole.storage().nbytes() != whole.nbytes()) {
      whole = whole.clone(at::MemoryFormat::Preserve);
    }
    parameters_.push_back({parameter_name, parameter, whole, {}});
  }
  for (Pack& pack : packs_) {
    pack.rows = at::empty({pack_size(pack, group_.rank())}, parameters_[pack.members.front()].whole.options());
    std::int64_t offset = 0;
    for (const std::size_t member : pack.members) {
      ShardedParameter& parameter = parameters_[member];
      auto sizes = parameter.whole.dim() == 0 ? std::vector<std::int64_t>{1} : parameter.whole.sizes().vec();
      const RowRange range = row_range(sizes[0], group_.rank(), group_.size());
      sizes[0] = range.count;
      const std::int64_t count = range.count * row_size(parameter.whole);
      // detach: a leaf, no view for autograd.
      parameter.rows = pack.rows.narrow(0, offset, count).view(sizes).detach();
      offset += count;
      const bool requires_grad = parameter.parameter.requires_grad();
      parameter.rows.set_requires_grad(requires_grad);
      parameter.whole.set_requires_grad(requires_grad);
    }
  }
  is_whole_ = true;
  store_rows();
}

std::int64_t ShardUnit::numel() const {
  std::int64_t out = 0;
  for (const ShardedParameter& parameter : parameters_) {
    out += parameter.parameter.numel();
  }
  return out;
}

std::int64_t ShardUnit::pack_size(const Pack& pack, std::int64_t rank) const {
  std::int64_t out = 0;
  for (const std::size_t member : pack.members) {
    const at::Tensor& whole = parameters_[member].whole;
    out += row_range(rows_of(whole), rank, group_.size()).count * row_size(whole);
  }
  return out;
}

void ShardUnit::gather() {
  if (is_whole_) {
    return;
  }
  const c10::InferenceMode normal(false);  // an evaluation may be the first to need the values
  for (ShardedParameter& parameter : parameters_) {
    c10::StorageImpl* storage = parameter.whole.storage().unsafeGetStorageImpl();
    storage->clear_data_ptr_access_error_msg_();
    storage->set_data_ptr_noswap(storage->allocator()->allocate(storage->nbytes()));
  }
  is_whole_ = true;
  for (const Pack& pack : packs_) {
    gather(pack);
  }
}

void ShardUnit::gather(const Pack& pack) {
  const at::NoGradGuard no_grad;
  const auto parts = group_.all_gather(pack.rows);
  for (std::int64_t rank = 0; rank < group_.size(); ++rank) {
    const at::Tensor& part = parts[static_cast<std::size_t>(rank)];
    std::int64_t offset = 0;
    for (const std::size_t member : pack.members) {
      // Not detach(): saved tensors would count the copy as a change.
      const at::Tensor whole = parameters_[member].whole.variable_data();
      at::Tensor to = take_rows(whole, row_range(rows_of(whole), rank, group_.size()));
      to.copy_(part.narrow(0, offset, to.numel()).view(to.sizes()));
      offset += to.numel();
    }
  }
}

void ShardUnit::release() {
  if (!is_whole_) {
    return;
  }
  is_whole_ = false;
  for (ShardedParameter& parameter : parameters_) {
    c10::StorageImpl* storage = parameter.whole.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(c10::DataPtr(nullptr, parameter.whole.device()));
    storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
        concat("[parallel.fsdp] expected memory of a sharded parameter to be read while its unit is whole, got ",
               quote(parameter.name),
               " after its unit was freed; use the parameter itself, not a tensor that shares its memory"));
  }
}

void ShardUnit::store_rows() {
  const at::NoGradGuard no_grad;
  for (ShardedParameter& parameter : parameters_) {
    const at::Tensor whole = parameter.whole.detach();
    parameter.rows.detach().copy_(take_rows(whole, row_range(rows_of(whole), group_.rank(), group_.size())));
  }
}

bool ShardUnit::has_gradients() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const ShardedParameter& parameter) { return parameter.whole.grad().defined(); });
}

bool ShardUnit::is_complete() const {
  return std::all_of(parameters_.begin(), parameters_.end(), [](const ShardedParameter& parameter) {
    return parameter.has_new || !parameter.whole.requires_grad();
  });
}

void ShardUnit::drop_gradients() {
  for (ShardedParameter& parameter : parameters_) {
    parameter.whole.mutable_grad().reset();
    parameter.has_new = false;
  }
}

void ShardUnit::reduce() {
  for (const Pack& pack : packs_) {
    reduce(pack);
  }
  drop_gradients();
}

// The parts of all ranks one behind the other; each ends with one number per parameter: the ranks that have a gradient.
void ShardUnit::reduce(const Pack& pack) {
  const at::NoGradGuard no_grad;
  std::vector<std::size_t> trained;
  for (const std::size_t member : pack.members) {
    if (parameters_[member].whole.requires_grad()) {
      trained.push_back(member);
    }
  }
  if (trained.empty()) {
    return;
  }
  const auto number = static_cast<std::int64_t>(trained.size());
  std::vector<std::int64_t> splits;
  for (std::int64_t rank = 0; rank < group_.size(); ++rank) {
    std::int64_t size = number;
    for (const std::size_t member : trained) {
      const at::Tensor& whole = parameters_[member].whole;
      size += row_range(rows_of(whole), rank, group_.size()).count * row_size(whole);
    }
    splits.push_back(size);
  }
  std::int64_t total = 0;
  for (const std::int64_t split : splits) {
    total += split;
  }
  const at::Tensor all = at::zeros({total}, parameters_[trained.front()].rows.options());
  std::int64_t offset = 0;
  for (std::int64_t rank = 0; rank < group_.size(); ++rank) {
    std::int64_t flag = offset + splits[static_cast<std::size_t>(rank)] - number;
    for (const std::size_t member : trained) {
      const at::Tensor& whole = parameters_[member].whole;
      const RowRange range = row_range(rows_of(whole), rank, group_.size());
      const std::int64_t count = range.count * row_size(whole);
      if (const at::Tensor& gradient = whole.grad(); gradient.defined()) {
        const at::Tensor from = take_rows(gradient.detach(), range);
        all.narrow(0, offset, count).view(from.sizes()).copy_(from);
        all.narrow(0, flag, 1).fill_(1);
      }
      offset += count;
      ++flag;
    }
    offset += number;
  }
  at::Tensor mine = group_.reduce_scatter(all, ReduceOp::sum, splits);
  replicas_.all_reduce(mine);
  const at::Tensor flags = mine.narrow(0, mine.numel() - number, number);
  offset = 0;
  for (std::int64_t at = 0; at < number; ++at) {
    ShardedParameter& parameter = parameters_[trained[static_cast<std::size_t>(at)]];
    const at::Tensor sum = mine.narrow(0, offset, parameter.rows.numel()).view(parameter.rows.sizes());
    offset += parameter.rows.numel();
    // Only where this rank has none must it look, and wait for the device.
    if (parameter.whole.grad().defined() || flags[at].item<double>() > 0) {
      add_gradient(parameter, sum);
    }
  }
}

void ShardUnit::add_gradient(ShardedParameter& parameter, const at::Tensor& sum) {
  at::Tensor& gradient = parameter.rows.mutable_grad();
  if (gradient.defined()) {
    gradient.add_(sum);
  } else {
    gradient = sum;
  }
}

}  // namespace danling::inline v0::detail
