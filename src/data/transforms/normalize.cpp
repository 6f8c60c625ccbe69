#include <danling/data/transforms/normalize.hpp>

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <data/kernels.hpp>
#include <data/transforms/images.hpp>

namespace danling::inline v0::data::transforms {

namespace {

// Returns the maximum of an integer dtype.
double largest(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return 255.0;
    case at::kChar:
      return 127.0;
    case at::kShort:
      return 32767.0;
    case at::kUInt16:
      return 65535.0;
    case at::kInt:
      return 2147483647.0;
    case at::kLong:
      return 9223372036854775807.0;
    case at::kBool:
      return 1.0;
    default:
      return 0.0;
  }
}

at::Tensor as_float(const at::Tensor& input, at::ScalarType dtype, std::string_view name) {
  if (input.is_floating_point()) {
    return input.to(dtype).contiguous();
  }
  const double most = largest(input.scalar_type());
  check<DataError>(most > 0.0, concat("data.", name), "expected integers or floating point numbers, got ",
                   c10::toString(input.scalar_type()));
  const at::ScalarType steps = dtype == at::kDouble ? at::kDouble : at::kFloat;
  return input.contiguous().to(steps).mul_(1.0 / most).to(dtype);
}

// For bytes and float32 in host memory: one pass over the planes.
template <class T>
at::Tensor normalize_planes(const at::Tensor& images, const std::vector<double>& mean, const std::vector<double>& std) {
  const at::Tensor from = images.contiguous();
  at::Tensor out = at::empty(from.sizes(), from.options().dtype(at::kFloat));
  const auto plane = static_cast<std::size_t>(from.size(2) * from.size(3));
  const T* pixels = from.const_data_ptr<T>();
  auto* to = out.mutable_data_ptr<float>();
  const auto channels = static_cast<std::size_t>(from.size(1));
  for (std::size_t i = 0; i < static_cast<std::size_t>(from.size(0)) * channels; ++i) {
    const std::size_t c = mean.size() == 1 ? 0 : i % channels;
    const auto m = static_cast<float>(mean[c]);
    const auto s = static_cast<float>(std[c]);
    if constexpr (sizeof(T) == 1) {
      kernels::normalize(pixels + i * plane, to + i * plane, plane, static_cast<float>(1.0 / 255.0), m, s);
    } else {
      kernels::normalize(pixels + i * plane, to + i * plane, plane, m, s);
    }
  }
  return out;
}

}  // namespace

Transform to_float(c10::ScalarType dtype) {
  check<ConfigError>(at::isFloatingType(dtype), "data.to_float", "expected a floating point type, got ",
                     c10::toString(dtype));
  return [dtype](Batch batch, const BatchInfo&) {
    check<DataError>(batch.input.defined(), "data.to_float", "expected a batch with an input, got none");
    if (dtype == at::kFloat && batch.input.is_cpu() && batch.input.scalar_type() == at::kByte &&
        batch.input.is_contiguous()) {
      at::Tensor out = at::empty(batch.input.sizes(), batch.input.options().dtype(at::kFloat));
      // Bytes are not negative, so adding 0 changes nothing.
      kernels::affine(batch.input.const_data_ptr<std::uint8_t>(), out.mutable_data_ptr<float>(),
                      static_cast<std::size_t>(out.numel()), static_cast<float>(1.0 / 255.0), 0.0F);
      batch.input = std::move(out);
    } else {
      batch.input = as_float(batch.input, dtype, "to_float");
    }
    return batch;
  };
}

Transform normalize(std::vector<double> mean, std::vector<double> std) {
  check<ConfigError>(!mean.empty() && mean.size() == std.size(), "data.normalize",
                     "expected as many means as stds, at least one, got ", mean.size(), " and ", std.size());
  for (const double value : std) {
    check<ConfigError>(value > 0.0, "data.normalize", "expected stds above 0, got ", value);
  }
  return [mean = std::move(mean), std = std::move(std)](Batch batch, const BatchInfo&) {
    at::Tensor images = detail::images_of(batch, "normalize");
    const std::int64_t channels = images.size(1);
    check<DataError>(mean.size() == 1 || static_cast<std::int64_t>(mean.size()) == channels, "data.normalize",
                     "expected images of ", mean.size(), " channels, got ", channels);
    if (images.is_cpu() && images.scalar_type() == at::kByte) {
      return detail::with_images(std::move(batch), normalize_planes<std::uint8_t>(images, mean, std));
    }
    if (images.is_cpu() && images.scalar_type() == at::kFloat) {
      return detail::with_images(std::move(batch), normalize_planes<float>(images, mean, std));
    }
    if (!images.is_floating_point()) {
      images = as_float(images, at::kFloat, "normalize");
    }
    // Copies the parameters of all channels at once, without waiting.
    const auto count = static_cast<std::int64_t>(mean.size());
    at::Tensor numbers = detail::empty_for({2, 1, count, 1, 1}, images.scalar_type(), images.device());
    std::vector<double> both = mean;
    both.insert(both.end(), std.begin(), std.end());
    numbers.copy_(at::tensor(both, at::kDouble).view({2, 1, count, 1, 1}));
    numbers = numbers.to(images.device(), /*non_blocking=*/true);
    return detail::with_images(std::move(batch), images.contiguous().sub(numbers[0]).div_(numbers[1]));
  };
}

}  // namespace danling::inline v0::data::transforms
