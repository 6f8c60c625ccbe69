#include <data/transforms/images.hpp>

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

namespace danling::inline v0::data::transforms::detail {

at::Tensor images_of(const Batch& batch, std::string_view name) {
  const at::Tensor& input = batch.input;
  check<DataError>(input.defined() && (input.dim() == 3 || input.dim() == 4), concat("data.", name),
                   "expected images [N, C, H, W] or [N, H, W], got ",
                   input.defined() ? concat("shape [", join(input.sizes()), "]") : std::string("no input"));
  at::Tensor images = input.dim() == 3 ? input.unsqueeze(1) : input;
  check<DataError>(images.size(2) > 0 && images.size(3) > 0, concat("data.", name),
                   "expected images of at least 1x1, got ", images.size(2), "x", images.size(3));
  if (images.is_conj() || images.is_neg()) {
    images = images.resolve_conj().resolve_neg();
  }
  return images;
}

Batch with_images(Batch batch, at::Tensor images) {
  batch.input = batch.input.dim() == 3 ? images.squeeze(1) : std::move(images);
  return batch;
}

void check_samples(const Batch& batch, const BatchInfo& info, std::string_view name) {
  const std::int64_t size = batch.size();
  // The last batch of a stream may have fewer samples than requested.
  check<DataError>(static_cast<std::int64_t>(info.size()) >= size, concat("data.", name), "expected at most ",
                   info.size(), " samples, as in the BatchInfo, got ", size);
}

at::Tensor fill_of(const Fill& fill, const at::Tensor& images, std::string_view name) {
  const std::int64_t channels = images.size(1);
  check<DataError>(fill.size() == 1 || static_cast<std::int64_t>(fill.size()) == channels, concat("data.", name),
                   "expected one value or one for each of ", channels, " channels, got ", fill.size());
  const at::Tensor exact = at::tensor(fill, at::kDouble);
  at::Tensor out = exact.to(images.scalar_type());
  if (!images.is_floating_point() && !images.is_complex()) {
    const at::Tensor back = out.to(at::kDouble);
    for (std::size_t i = 0; i < fill.size(); ++i) {
      check<DataError>(back.const_data_ptr<double>()[i] == fill[i], concat("data.", name),
                       "expected a value that images of type ", c10::toString(images.scalar_type()), " can hold, got ",
                       fill[i]);
    }
  }
  return out;
}

at::Tensor empty_for(at::IntArrayRef shape, at::ScalarType dtype, at::Device device) {
  return at::empty(shape, at::TensorOptions().dtype(dtype).pinned_memory(device.is_cuda()));
}

void check_probability(double p, std::string_view name) {
  check<ConfigError>(p >= 0.0 && p <= 1.0, concat("data.", name), "expected a probability in [0, 1], got ", p);
}

void check_size(Size size, std::string_view name) {
  check<ConfigError>(size.height > 0 && size.width > 0, concat("data.", name), "expected a size of at least 1x1, got ",
                     size.height, "x", size.width);
}

void check_range(Range range, double most, std::string_view what, std::string_view name) {
  check<ConfigError>(range.low > 0.0 && range.low <= range.high && range.high <= most, concat("data.", name),
                     "expected a ", what, " with 0 < low <= high",
                     std::isinf(most) ? std::string() : concat(" <= ", most), ", got ", range.low, " .. ", range.high);
}

}  // namespace danling::inline v0::data::transforms::detail
