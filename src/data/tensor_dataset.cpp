#include <danling/data/tensor_dataset.hpp>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>

#include <danling/core/error.hpp>

#include <data/batch_memory.hpp>
#include <data/kernels.hpp>

namespace danling::inline v0::data {

namespace {

void check_records(const at::Tensor& tensor, std::string_view name, const at::Tensor& input) {
  check<DataError>(tensor.dim() > 0 && tensor.size(0) == input.size(0), "data.tensors", "expected ", name, " of ",
                   input.size(0), " records as in the input, got shape [", join(tensor.sizes()), "]");
  check<DataError>(tensor.device() == input.device(), "data.tensors", "expected ", name, " on ", input.device().str(),
                   " as the input, got ", tensor.device().str());
}

// Returns the shape of `count` records of `tensor`.
c10::SmallVector<std::int64_t, 5> shape_of(const at::Tensor& tensor, std::size_t count) {
  c10::SmallVector<std::int64_t, 5> shape(tensor.sizes().begin(), tensor.sizes().end());
  shape[0] = static_cast<std::int64_t>(count);
  return shape;
}

// Indices as a tensor, created on first use.
class Records {
 public:
  Records(std::span<const std::int64_t> indices, c10::Device device) : indices_(indices), device_(device) {}

  std::span<const std::int64_t> list() const { return indices_; }
  const at::Tensor& tensor() {
    if (!tensor_.defined()) {
      // Only read, and only during this call: a copy to a device leaves pageable memory before it returns.
      tensor_ = at::from_blob(const_cast<std::int64_t*>(indices_.data()), {static_cast<std::int64_t>(indices_.size())},
                              at::kLong);
      if (!device_.is_cpu()) {
        tensor_ = tensor_.to(device_, /*non_blocking=*/true);
      }
    }
    return tensor_;
  }

 private:
  std::span<const std::int64_t> indices_;
  c10::Device device_;
  at::Tensor tensor_;
};

// True if the records are contiguous in host memory, as our loops need.
bool in_rows(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() && tensor.numel() > 0 &&
         !tensor.is_conj() && !tensor.is_neg() && !tensor.is_quantized() && !tensor.requires_grad();
}

at::Tensor rows_of(const at::Tensor& tensor, Records& records) {
  if (!in_rows(tensor)) {
    return at::index_select(tensor, 0, records.tensor());
  }
  const std::span<const std::int64_t> indices = records.list();
  at::Tensor out = detail::empty_batch(shape_of(tensor, indices.size()), tensor.options());
  kernels::gather(static_cast<const std::byte*>(tensor.const_data_ptr()),
                  tensor.nbytes() / static_cast<std::size_t>(tensor.size(0)), indices,
                  static_cast<std::byte*>(out.mutable_data_ptr()));
  return out;
}

template <class T>
void gather_affine(const at::Tensor& tensor, std::span<const std::int64_t> indices, const Affine& affine,
                   at::Tensor& out) {
  kernels::gather_affine(tensor.const_data_ptr<T>(), static_cast<std::size_t>(tensor.numel() / tensor.size(0)), indices,
                         out.mutable_data_ptr<float>(), static_cast<float>(affine.scale),
                         static_cast<float>(affine.shift));
}

// Gathers the rows, scaled and shifted; each operation is rounded to float32 as in the loops.
at::Tensor affine_rows_of(const at::Tensor& tensor, Records& records, const Affine& affine) {
  const at::ScalarType dtype = tensor.scalar_type();
  if (!in_rows(tensor) || (dtype != at::kByte && dtype != at::kFloat)) {
    const auto as_float = [](double value) { return static_cast<double>(static_cast<float>(value)); };
    at::Tensor out = rows_of(tensor, records).to(at::kFloat);  // new memory: `rows_of` copies
    return out.mul_(as_float(affine.scale)).add_(as_float(affine.shift));
  }
  const std::span<const std::int64_t> indices = records.list();
  at::Tensor out = detail::empty_batch(shape_of(tensor, indices.size()), tensor.options().dtype(at::kFloat));
  if (dtype == at::kByte) {
    gather_affine<std::uint8_t>(tensor, indices, affine, out);
  } else {
    gather_affine<float>(tensor, indices, affine, out);
  }
  return out;
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
  for (const auto& item : options_.extra) {
    check<DataError>(item.tensor.defined(), "data.tensors", "expected a tensor for ", quote(item.name), ", got none");
    check_records(item.tensor, quote(item.name), input_);
  }
}

Batch TensorDataset::get_batch(std::span<const std::int64_t> indices) {
  const std::int64_t records = size();
  for (const std::int64_t index : indices) {
    check<DataError>(index >= 0 && index < records, "data.tensors", "expected an index in [0, ", records, "), got ",
                     index);
  }
  Records chosen(indices, input_.device());
  Batch batch;
  batch.input =
      options_.input_transform ? affine_rows_of(input_, chosen, *options_.input_transform) : rows_of(input_, chosen);
  if (target_.defined()) {
    batch.target = rows_of(target_, chosen);
  }
  for (const auto& item : options_.extra) {
    batch.set(item.name, rows_of(item.tensor, chosen));
  }
  return batch;
}

}  // namespace danling::inline v0::data
