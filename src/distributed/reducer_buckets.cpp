// Layout of a Reducer: assigns parameters to buckets and offsets.
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/zeros.h>

#include <distributed/reducer_impl.hpp>

namespace danling::inline v0 {
namespace {

constexpr std::int64_t alignment = 16;  // elements: a cache line of float32

// A complex number counts as two.
std::int64_t reals_of(const at::Tensor& param) { return param.numel() * (param.is_complex() ? 2 : 1); }

std::string describe(const std::vector<at::Tensor>& params) {
  std::string out;
  for (const at::Tensor& param : params) {
    out += concat(c10::toString(param.scalar_type()), "[", join(param.sizes()), "] ");
  }
  return out;
}

}  // namespace

void Reducer::Impl::check_alike() const {
  std::vector<at::Tensor> tensors;
  for (const Param& param : params_) {
    tensors.push_back(param.tensor);
  }
  const auto all = group_.all_gather(describe(tensors));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    check<DistributedError>(all[rank] == all.front(), "reducer.params",
                            "expected the same parameters that require gradients on all ranks, got ", all.front(),
                            "on rank 0 and ", all[rank], "on rank ", rank);
  }
}

// Backward completes the last parameters first.
void Reducer::Impl::make_buckets() {
  std::vector<detail::BucketShape> shapes;
  std::vector<std::vector<std::pair<std::size_t, std::int64_t>>> places;  // per bucket: parameter and offset
  std::vector<std::int64_t> sizes;
  std::vector<at::ScalarType> dtypes;
  for (std::size_t left = params_.size(); left > 0; --left) {
    Param& param = params_[left - 1];
    const at::ScalarType dtype = c10::toRealValueType(param.tensor.scalar_type());
    std::size_t at = sizes.size();
    while (at > 0 && dtypes[at - 1] != dtype) {
      --at;
    }
    const std::int64_t limit = (at == 1 ? options_.first_bucket_bytes : options_.bucket_bytes) /
                               static_cast<std::int64_t>(c10::elementSize(dtype));
    const std::int64_t count = (reals_of(param.tensor) + alignment - 1) / alignment * alignment;
    if (at == 0 || sizes[at - 1] + count > limit) {
      sizes.push_back(0);
      dtypes.push_back(dtype);
      places.emplace_back();
      at = sizes.size();
    }
    param.bucket = at - 1;
    places[at - 1].emplace_back(left - 1, sizes[at - 1]);
    sizes[at - 1] += count;
  }
  const at::Device device = params_.empty() ? at::Device(at::kCPU) : params_.front().tensor.device();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool narrows = options_.reduce_dtype != at::ScalarType::Undefined &&
                         c10::elementSize(dtypes[i]) > c10::elementSize(options_.reduce_dtype);
    shapes.push_back({sizes[i], narrows ? options_.reduce_dtype : dtypes[i], device});
  }
  if (options_.powersgd) {
    std::vector<std::vector<detail::BucketPiece>> pieces;
    for (const auto& of_bucket : places) {
      auto& out = pieces.emplace_back();
      for (const auto& [index, offset] : of_bucket) {
        out.push_back(detail::piece_of(params_[index].tensor, params_[index].position, offset));
      }
    }
    auto powersgd = std::make_unique<detail::PowerSGDExchange>(group_, shapes, std::move(pieces), *options_.powersgd,
                                                               options_.shared_memory, options_.timeout);
    text_ = powersgd->name();
    exchange_ = std::move(powersgd);
  } else {
    exchange_ = detail::make_exchange(group_, shapes, options_.shared_memory, options_.timeout, text_);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Bucket bucket;
    bucket.wire = exchange_->memory(i);
    bucket.gradients = shapes[i].dtype == dtypes[i]
                           ? bucket.wire
                           : at::zeros({sizes[i]}, at::TensorOptions().dtype(dtypes[i]).device(device));
    for (const auto& [index, offset] : places[i]) {
      bucket.params.push_back(index);
      Param& param = params_[index];
      at::Tensor flat = bucket.gradients.narrow(0, offset, reals_of(param.tensor));
      flat = param.tensor.is_complex() ? at::view_as_complex(flat.view({-1, 2})) : flat;
      param.view = param.tensor.is_non_overlapping_and_dense()
                       ? flat.as_strided(param.tensor.sizes(), param.tensor.strides(), flat.storage_offset())
                       : flat.view(param.tensor.sizes());
    }
    buckets_.push_back(std::move(bucket));
  }
}

}  // namespace danling::inline v0
