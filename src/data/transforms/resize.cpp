#include <danling/data/transforms/resize.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/empty.h>

#include <data/transforms/images.hpp>

namespace danling::inline v0::data::transforms {

namespace {

/// Returns the batch's images, in a dtype that float32 can represent.
at::Tensor resizable_images(const Batch& batch, std::string_view name) {
  at::Tensor images = detail::images_of(batch, name);
  const at::ScalarType dtype = images.scalar_type();
  check<DataError>(images.is_floating_point() || dtype == at::kByte || dtype == at::kChar || dtype == at::kShort ||
                       dtype == at::kUInt16,
                   concat("data.", name),
                   "expected images of integers of at most 16 bits or floating point numbers, got ",
                   c10::toString(dtype));
  check<DataError>(images.size(1) > 0, concat("data.", name), "expected images of at least one channel, got none");
  return images;
}

at::Tensor resized(const at::Tensor& images, Size size) {
  if (images.size(2) == size.height && images.size(3) == size.width) {
    return images.contiguous();
  }
  const at::ScalarType dtype = images.scalar_type();
  const bool direct = dtype == at::kFloat || dtype == at::kDouble || (dtype == at::kByte && images.is_cpu());
  const at::Tensor from = direct ? images : images.to(at::kFloat);
  at::Tensor out = at::_upsample_bilinear2d_aa(from.contiguous(), {size.height, size.width}, /*align_corners=*/false);
  if (direct) {
    return out;
  }
  return (at::isIntegralType(dtype, true) ? out.round_() : out).to(dtype);
}

struct Part {
  std::int64_t top;
  std::int64_t left;
  std::int64_t height;
  std::int64_t width;
};

Part draw_part(Random random, const RandomResizedCropOptions& options, std::int64_t height, std::int64_t width) {
  const auto round = [](double value) { return static_cast<std::int64_t>(std::nearbyint(value)); };
  const auto area = static_cast<double>(height * width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double taken = area * random.uniform(options.scale.low, options.scale.high);
    const double aspect = std::exp(random.uniform(std::log(options.ratio.low), std::log(options.ratio.high)));
    const std::int64_t w = round(std::sqrt(taken * aspect));
    const std::int64_t h = round(std::sqrt(taken / aspect));
    if (w > 0 && w <= width && h > 0 && h <= height) {
      const std::int64_t top = random.randint(height - h + 1);
      return {top, random.randint(width - w + 1), h, w};
    }
  }
  const double aspect = static_cast<double>(width) / static_cast<double>(height);
  Part part = {0, 0, height, width};
  if (aspect < options.ratio.low) {
    part.height = std::clamp<std::int64_t>(round(static_cast<double>(width) / options.ratio.low), 1, height);
  } else if (aspect > options.ratio.high) {
    part.width = std::clamp<std::int64_t>(round(static_cast<double>(height) * options.ratio.high), 1, width);
  }
  part.top = (height - part.height) / 2;
  part.left = (width - part.width) / 2;
  return part;
}

}  // namespace

Transform resize(Size size) {
  detail::check_size(size, "resize");
  return [size](Batch batch, const BatchInfo&) {
    const at::Tensor images = resizable_images(batch, "resize");
    return detail::with_images(std::move(batch), resized(images, size));
  };
}

Transform resize(std::int64_t shorter_side) {
  detail::check_size(shorter_side, "resize");
  return [shorter_side](Batch batch, const BatchInfo&) {
    const at::Tensor images = resizable_images(batch, "resize");
    const std::int64_t height = images.size(2);
    const std::int64_t width = images.size(3);
    const auto longer = [&](std::int64_t of, std::int64_t shorter) {
      return static_cast<std::int64_t>(static_cast<double>(shorter_side * of) / static_cast<double>(shorter));
    };
    const Size size =
        height <= width ? Size(shorter_side, longer(width, height)) : Size(longer(height, width), shorter_side);
    return detail::with_images(std::move(batch), resized(images, size));
  };
}

Transform random_resized_crop(Size size, RandomResizedCropOptions options) {
  detail::check_size(size, "random_resized_crop");
  detail::check_range(options.scale, 1.0, "scale", "random_resized_crop");
  detail::check_range(options.ratio, std::numeric_limits<double>::infinity(), "ratio", "random_resized_crop");
  return [size, options](Batch batch, const BatchInfo& info) {
    const at::Tensor images = resizable_images(batch, "random_resized_crop");
    detail::check_samples(batch, info, "random_resized_crop");
    const Keys keys(info, "random_resized_crop");
    at::Tensor out = at::empty({images.size(0), images.size(1), size.height, size.width}, images.options());
    for (std::int64_t n = 0; n < images.size(0); ++n) {
      const Part part = draw_part(keys.random(static_cast<std::size_t>(n)), options, images.size(2), images.size(3));
      const at::Tensor taken = images.narrow(0, n, 1).narrow(2, part.top, part.height).narrow(3, part.left, part.width);
      out.narrow(0, n, 1).copy_(resized(taken, size));
    }
    return detail::with_images(std::move(batch), std::move(out));
  };
}

}  // namespace danling::inline v0::data::transforms
