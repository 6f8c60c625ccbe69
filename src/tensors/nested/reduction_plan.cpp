#include <tensors/nested/reduction_plan.hpp>

#include <algorithm>
#include <memory>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace danling::inline v0::detail {
namespace {

bool contains(const std::vector<std::int64_t>& dims, std::int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

}  // namespace

ReductionPlan::ReductionPlan(Call& call, const NestedTensorImpl& impl, const std::vector<std::int64_t>& dims,
                             bool keepdim)
    : impl_(impl), keepdim_(keepdim), over_batch_(dims.empty()) {
  const Structure& structure = impl.structure();
  const std::int64_t rank = impl.element_rank();
  for (const std::int64_t dim : dims) {
    const auto own = structure.element_dim(dim, rank);
    call.expect(own ? !contains(reduced_, *own) : !over_batch_, "expected each dimension once, got (", join(dims), ")");
    if (own) {
      reduced_.push_back(*own);
    } else {
      over_batch_ = true;
    }
  }
  per_element_ = over_batch_ && dims.size() == 1 && rank > 0;
  if (per_element_ || dims.empty()) {
    for (std::int64_t dim = 0; dim < rank; ++dim) {
      reduced_.push_back(dim);
    }
    over_batch_ = dims.empty();
  }
  std::sort(reduced_.begin(), reduced_.end());
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    const bool goes = contains(reduced_, dim);
    (structure.is_ragged(dim) ? goes ? ragged_ : kept_ragged_ : goes ? static_ : kept_static_).push_back(dim);
  }
}

std::vector<std::int64_t> ReductionPlan::values_dims() const {
  std::vector<std::int64_t> out;
  if (over_batch_ || !ragged_.empty()) {
    out.push_back(0);
  }
  for (const std::int64_t dim : static_) {
    out.push_back(impl_.structure().values_dim(dim));
  }
  return out;
}

at::Tensor ReductionPlan::rows(const at::Tensor& values) const {
  c10::DimVector order = {0}, sizes = {values.size(0)};
  for (const std::int64_t dim : static_) {
    order.push_back(impl_.structure().values_dim(dim));
    sizes[0] *= values.size(order.back());
  }
  for (const std::int64_t dim : kept_static_) {
    order.push_back(impl_.structure().values_dim(dim));
    sizes.push_back(values.size(order.back()));
  }
  return values.permute(order).reshape(sizes);
}

Segments ReductionPlan::segments(at::Device device) const {
  const Structure& structure = impl_.structure();
  const Ragged& ragged = *structure.ragged;
  std::int64_t times = 1;
  for (const std::int64_t dim : static_) {
    times *= impl_.values().size(structure.values_dim(dim));
  }
  if (kept_ragged_.empty() && over_batch_) {
    return Segments{at::zeros({ragged.rows()}, at::TensorOptions(device).dtype(at::kLong)), {ragged.rows()}, true}
        .repeated(times);
  }
  if (kept_ragged_.empty()) {
    return segments_of(structure, device).repeated(times);
  }
  // Positions along the kept ragged dimensions: of each element, or of the longest.
  Segments out;
  const at::Tensor index = at::empty({ragged.rows()}, at::kLong);
  std::int64_t* write = index.mutable_data_ptr<std::int64_t>();
  std::int64_t first = 0;
  for (std::int64_t element = 0; element < ragged.batch(); ++element) {
    const auto sizes = ragged.sizes(element);
    const auto kept = over_batch_ ? kept_sizes(-1) : kept_sizes(element);
    std::int64_t positions = 1;
    for (const std::int64_t size : kept) {
      positions *= size;
    }
    out.counts.resize(static_cast<std::size_t>(first + positions));
    for (std::int64_t row = 0; row < ragged.rows_of(element); ++row) {
      std::int64_t place = first, rest = row, stride = 1;
      auto kept_size = kept.rbegin();
      for (std::size_t at = ragged.rank(); at-- > 0;) {
        if (contains(kept_ragged_, structure.ragged_dims[at])) {
          place += rest % sizes[at] * stride;
          stride *= *kept_size++;
        }
        rest /= sizes[at];
      }
      ++out.counts[static_cast<std::size_t>(place)];
      *write++ = place;
    }
    first += over_batch_ ? 0 : positions;
  }
  out.index = index.to(device, /*dtype=*/at::kLong, /*non_blocking=*/true);
  return out.repeated(times);
}

std::vector<std::int64_t> ReductionPlan::kept_sizes(std::int64_t element) const {
  const Structure& structure = impl_.structure();
  std::vector<std::int64_t> out;
  for (const std::int64_t dim : kept_ragged_) {
    const std::size_t at = structure.ragged_index(dim);
    out.push_back(element < 0 ? structure.ragged->longest()[at] : structure.ragged->sizes(element)[at]);
  }
  return out;
}

bool ReductionPlan::batch_leads() const {
  const std::size_t kept = keepdim_ ? 1 : kept_ragged_.size() + kept_static_.size();
  return impl_.structure().batch_first || kept == 0 || (!keepdim_ && contains(reduced_, 0));
}

Structure ReductionPlan::kept_structure() const {
  Structure out = impl_.structure();
  out.batch_first = batch_leads();
  if (!ragged_.empty()) {
    std::vector<std::int64_t> sizes;
    for (std::int64_t element = 0; element < out.batch(); ++element) {
      const auto kept = kept_sizes(element);
      sizes.insert(sizes.end(), kept.begin(), kept.end());
    }
    out.ragged = std::make_shared<Ragged>(out.batch(), kept_ragged_.size(), std::move(sizes));
  }
  out.ragged_dims.clear();
  for (const std::int64_t dim : kept_ragged_) {
    const auto gone = keepdim_ ? 0 : std::count_if(reduced_.begin(), reduced_.end(), [&](auto d) { return d < dim; });
    out.ragged_dims.push_back(dim - gone);
  }
  return out;
}

at::Tensor ReductionPlan::finish(const at::Tensor& reduced) const {
  const Structure& structure = impl_.structure();
  if (per_element_) {
    return keepdim_ ? reduced.unsqueeze(structure.batch_dim(impl_.element_rank())) : reduced;
  }
  // Static sizes of the result in the order of the element's dimensions, and the places of the ragged dimensions.
  std::vector<std::int64_t> statics;
  c10::DimVector ragged_dims;
  std::int64_t rank = 0;
  for (std::int64_t dim = 0; dim < impl_.element_rank(); ++dim) {
    if (contains(kept_ragged_, dim)) {
      ragged_dims.push_back(rank++);
    } else if (contains(kept_static_, dim)) {
      statics.push_back(impl_.values().size(structure.values_dim(dim)));
      ++rank;
    } else if (keepdim_) {
      statics.push_back(1);
      ++rank;
    }
  }
  if (is_nested()) {
    Structure own = kept_structure();
    own.ragged_dims = ragged_dims;
    statics.insert(statics.begin(), own.ragged->rows());
    return wrap(reduced.reshape(statics), std::move(own));
  }
  if (!over_batch_) {
    statics.insert(statics.begin(), structure.batch());
    const at::Tensor out = reduced.reshape(statics);
    return batch_leads() ? out : out.transpose(0, 1);
  }
  std::vector<std::int64_t> shape = kept_sizes(-1);
  shape.insert(shape.end(), statics.begin(), statics.end());
  c10::DimVector order;
  auto next_static = static_cast<std::int64_t>(kept_ragged_.size());
  for (std::int64_t dim = 0, next_ragged = 0; dim < rank; ++dim) {
    const bool is_ragged = std::find(ragged_dims.begin(), ragged_dims.end(), dim) != ragged_dims.end();
    order.push_back(is_ragged ? next_ragged++ : next_static++);
  }
  const at::Tensor out = reduced.reshape(shape).permute(order);
  return keepdim_ ? out.unsqueeze(structure.batch_dim(impl_.element_rank())) : out;
}

}  // namespace danling::inline v0::detail
