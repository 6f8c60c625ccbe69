#include <danling/data/tensor_dataset.hpp>

#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/scalar_tensor.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

namespace {

void check_records(const at::Tensor& tensor, std::string_view name, const at::Tensor& input) {
  check<DataError>(tensor.dim() > 0 && tensor.size(0) == input.size(0), "data.tensors", "expected ", name, " of ",
                   input.size(0), " records as in the input, got shape [", join(tensor.sizes()), "]");
  check<DataError>(tensor.device() == input.device(), "data.tensors", "expected ", name, " on ", input.device().str(),
                   " as the input, got ", tensor.device().str());
}

}  // namespace

TensorDataset::TensorDataset(at::Tensor input, at::Tensor target, TensorDatasetOptions options)
    : input_(std::move(input)), target_(std::move(target)), options_(std::move(options)) {
  check<DataError>(input_.defined() && input_.dim() > 0, "data.tensors",
                   "expected an input with a first dimension that counts records, got ",
                   input_.defined() ? "a scalar" : "none");
  if (target_.defined()) {
    check_records(target_, "a target", input_);
  }
  if (options_.input_transform) {
    shift_ = at::scalar_tensor(options_.input_transform->shift, at::kFloat);
  }
  for (const auto& item : options_.extra) {
    check<DataError>(item.tensor.defined(), "data.tensors", "expected a tensor for ", quote(item.name), ", got none");
    check_records(item.tensor, quote(item.name), input_);
  }
}

at::Tensor TensorDataset::transformed(const at::Tensor& gathered) const {
  const double scale = options_.input_transform->scale;
  if (at::isIntegralType(gathered.scalar_type(), /*includeBool=*/false)) {
    // One kernel that converts, scales and shifts: a third cheaper than three.
    return at::add(shift_, gathered, scale);
  }
  return gathered.to(at::kFloat).mul_(scale).add_(options_.input_transform->shift);
}

Batch TensorDataset::get_batch(std::span<const std::int64_t> indices) {
  const std::int64_t records = size();
  for (const std::int64_t index : indices) {
    check<DataError>(index >= 0 && index < records, "data.tensors", "expected an index in [0, ", records, "), got ",
                     index);
  }
  // Only read from, and only during this call: a copy to a device leaves pageable memory before it returns.
  at::Tensor where =
      at::from_blob(const_cast<std::int64_t*>(indices.data()), {static_cast<std::int64_t>(indices.size())}, at::kLong);
  if (!input_.is_cpu()) {
    where = where.to(input_.device(), /*non_blocking=*/true);
  }
  Batch batch;
  batch.input = at::index_select(input_, 0, where);
  if (options_.input_transform) {
    batch.input = transformed(batch.input);
  }
  if (target_.defined()) {
    batch.target = at::index_select(target_, 0, where);
  }
  for (const auto& item : options_.extra) {
    batch.set(item.name, at::index_select(item.tensor, 0, where));
  }
  return batch;
}

}  // namespace danling::inline v0::data
