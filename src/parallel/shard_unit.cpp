#include <parallel/shard_unit.hpp>

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include <danling/core/error.hpp>

#include <parallel/sharded_tensor.hpp>

namespace danling::inline v0::detail {
namespace {

/// Returns whether a parameter's memory can be replaced: it owns its memory, and begins at its start.
bool owns_its_memory(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && tensor.storage_offset() == 0 &&
         tensor.storage().nbytes() == tensor.nbytes();
}

// LibTorch 2.11 cannot take back the error of a storage. There freed parameters have no error, only no memory.
template <class Storage>
concept TakesBackErrors = requires(Storage& storage) { storage.clear_data_ptr_access_error_msg_(); };

template <class Storage>
void set_memory(Storage& storage, c10::DataPtr memory) {
  if constexpr (TakesBackErrors<Storage>) {
    storage.clear_data_ptr_access_error_msg_();
  }
  storage.set_data_ptr_noswap(std::move(memory));
}

/// Makes reads of the memory fail with `error`.
template <class Storage>
void free_memory(Storage& storage, at::Device device, const std::string& error) {
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, device));
  if constexpr (TakesBackErrors<Storage>) {
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(error);
  }
}

}  // namespace

ShardUnit::ShardUnit(std::string name, const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                     const ShardLayout& layout)
    : name_(std::move(name)), layout_(layout) {
  const at::NoGradGuard no_grad;
  for (const auto& [parameter_name, parameter] : parameters) {
    const auto same =
        std::find_if(packs_.begin(), packs_.end(), [&, dtype = parameter.scalar_type()](const Pack& pack) {
          return parameters_[pack.members.front()].parameter.scalar_type() == dtype;
        });
    Pack& pack = same == packs_.end() ? packs_.emplace_back() : *same;
    pack.members.push_back(parameters_.size());
    if (parameter.requires_grad()) {
      pack.trained.push_back(parameters_.size());
    }
    at::Tensor whole = parameter;
    if (!layout_.plain) {
      whole = detached_values(parameter);
      const bool casts = layout_.param_dtype != at::ScalarType::Undefined && whole.is_floating_point();
      whole = casts && whole.scalar_type() != layout_.param_dtype ? whole.to(layout_.param_dtype)
              : owns_its_memory(whole)                            ? whole
                                                                  : whole.clone(at::MemoryFormat::Preserve);
      whole.set_requires_grad(parameter.requires_grad());
    }
    parameters_.push_back({parameter_name, parameter, whole, {}});
  }
  is_whole_ = true;
  const bool alone = layout_.split.ranks() == 1 && layout_.plain;
  for (Pack& pack : packs_) {
    if (!layout_.plain) {
      at::TensorOptions options = parameters_[pack.members.front()].parameter.options();
      options = layout_.offload ? options.device(at::kCPU).pinned_memory(!options.device().is_cpu()) : options;
      pack.rows = at::zeros({longest(pack.members)}, options.requires_grad(false));
    }
    std::int64_t offset = 0;
    for (const std::size_t member : pack.members) {
      ShardedParameter& parameter = parameters_[member];
      const RowRange own = range(parameter, layout_.rank);
      if (alone) {
        parameter.rows = parameter.parameter;
        continue;
      }
      const at::Tensor values = take_rows(parameter.parameter.detach(), own);
      if (layout_.plain) {
        parameter.rows = values.detach();
      } else {
        // detach(): a leaf, not a view, for autograd.
        parameter.rows = pack.rows.narrow(0, offset, values.numel()).view(values.sizes()).detach();
        parameter.rows.detach().copy_(values);
        offset += values.numel();
      }
      parameter.rows.set_requires_grad(parameter.parameter.requires_grad());
    }
  }
}

std::int64_t ShardUnit::numel() const {
  std::int64_t out = 0;
  for (const ShardedParameter& parameter : parameters_) {
    out += parameter.parameter.numel();
  }
  return out;
}

std::int64_t ShardUnit::size_of(const std::vector<std::size_t>& members, std::int64_t rank) const {
  std::int64_t out = 0;
  for (const std::size_t member : members) {
    out += range(parameters_[member], rank).count * row_size(parameters_[member].whole);
  }
  return out;
}

std::int64_t ShardUnit::longest(const std::vector<std::size_t>& members) const {
  std::int64_t out = 0;
  for (std::int64_t rank = 0; rank < layout_.split.ranks(); ++rank) {
    out = std::max(out, size_of(members, rank));
  }
  return out;
}

void ShardUnit::allocate() {
  allocate([&](std::size_t index) {
    c10::StorageImpl* storage = parameters_[index].whole.storage().unsafeGetStorageImpl();
    const c10::OptionalDeviceGuard guard(parameters_[index].whole.device());  // an allocator uses the current device
    return storage->allocator()->allocate(storage->nbytes());
  });
}

void ShardUnit::allocate(const std::function<c10::DataPtr(std::size_t index)>& memory_of) {
  for (std::size_t index = 0; index < parameters_.size(); ++index) {
    set_memory(*parameters_[index].whole.storage().unsafeGetStorageImpl(), memory_of(index));
  }
  is_whole_ = true;
}

void ShardUnit::release() {
  if (!is_whole_ || layout_.plain) {
    return;
  }
  is_whole_ = false;
  for (ShardedParameter& parameter : parameters_) {
    free_memory(
        *parameter.whole.storage().unsafeGetStorageImpl(), parameter.whole.device(),
        concat("[parallel.fsdp] expected memory of a sharded parameter to be read while its unit is whole, got ",
               quote(parameter.name),
               " after its unit was freed; use the parameter itself, not a tensor that shares its memory"));
  }
}

void ShardUnit::store_rows() {
  const at::NoGradGuard no_grad;
  for (ShardedParameter& parameter : parameters_) {
    if (!layout_.plain) {
      parameter.rows.detach().copy_(take_rows(parameter.module_tensor.detach(), range(parameter, layout_.rank)));
    }
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

std::vector<at::Tensor> ShardUnit::take_gradients() {
  std::vector<at::Tensor> out;
  for (ShardedParameter& parameter : parameters_) {
    out.push_back(std::exchange(parameter.whole.mutable_grad(), at::Tensor()));
    parameter.has_new = false;
  }
  return out;
}

void ShardUnit::drop_gradients() { take_gradients(); }

void ShardUnit::accept(const Pack& pack, const at::Tensor& sum, const std::vector<bool>& has) {
  const at::NoGradGuard no_grad;
  const auto number = static_cast<std::int64_t>(pack.trained.size());
  const at::Tensor flags = sum.narrow(0, sum.numel() - number, number);
  std::int64_t offset = 0;
  for (std::int64_t at = 0; at < number; ++at) {
    ShardedParameter& parameter = parameters_[pack.trained[static_cast<std::size_t>(at)]];
    const at::Tensor mine = sum.narrow(0, offset, parameter.rows.numel()).view(parameter.rows.sizes());
    offset += parameter.rows.numel();
    // Reads the flag, and waits for the device, only if this rank has no gradient.
    if (!has[pack.trained[static_cast<std::size_t>(at)]] && flags[at].item<double>() <= 0) {
      continue;
    }
    at::Tensor& gradient = parameter.rows.mutable_grad();
    if (gradient.defined()) {
      gradient.add_(mine.to(gradient.device()));
    } else {
      gradient = mine.to(parameter.rows.device(), parameter.rows.scalar_type());
    }
  }
}

at::ScalarType sum_dtype(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

at::ScalarType reduce_dtype(const ShardUnit& unit, const ShardUnit::Pack& pack) {
  const at::Tensor& whole = unit.parameters()[pack.members.front()].whole;
  const at::ScalarType wanted = unit.layout().reduce_dtype;
  const at::ScalarType own =
      wanted != at::ScalarType::Undefined && whole.is_floating_point() ? wanted : whole.scalar_type();
  return unit.layout().exact ? sum_dtype(own) : own;
}

}  // namespace danling::inline v0::detail
