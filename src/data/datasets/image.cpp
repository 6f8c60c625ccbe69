#include <danling/data/datasets/image.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::data {

namespace {

// Distinguishes these draws from other transforms with the same key.
constexpr std::uint64_t crop_stream = 0x63726f70;

void check_image(const at::Tensor& image) {
  check<DataError>(image.defined() && image.dim() == 3 && image.numel() > 0, "data.image",
                   "expected an image [C, H, W] that is not empty, got ",
                   image.defined() ? concat("[", join(image.sizes()), "]") : std::string("none"));
}

void check_size(const ImageSize& size, std::string_view name) {
  check<ConfigError>(size.height > 0 && size.width > 0, "data.image", "expected ", name, " above 0, got ", size.height,
                     "x", size.width);
}

at::Tensor cut(const at::Tensor& image, std::int64_t top, std::int64_t left, ImageSize size) {
  return image.narrow(1, top, size.height).narrow(2, left, size.width);
}

/// Python's round(x / 2): rounds halves to even.
std::int64_t round_half(std::int64_t x) { return x % 2 == 0 ? x / 2 : x / 2 + (x / 2 % 2 != 0 ? 1 : 0); }

/// Chooses the crop of a random resized crop.
std::pair<std::array<std::int64_t, 2>, ImageSize> choose_part(const at::Tensor& image, const RandomResizedCrop& crop,
                                                              Random& random) {
  const std::int64_t height = image.size(1);
  const std::int64_t width = image.size(2);
  const double area = static_cast<double>(height) * static_cast<double>(width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double part = area * random.uniform(crop.min_scale, crop.max_scale);
    const double ratio = std::exp(random.uniform(std::log(crop.min_ratio), std::log(crop.max_ratio)));
    const ImageSize size{static_cast<std::int64_t>(std::nearbyint(std::sqrt(part / ratio))),
                         static_cast<std::int64_t>(std::nearbyint(std::sqrt(part * ratio)))};
    if (size.height > 0 && size.height <= height && size.width > 0 && size.width <= width) {
      const std::int64_t top = random.randint(height - size.height + 1);
      return {{top, random.randint(width - size.width + 1)}, size};
    }
  }
  ImageSize size{height, width};
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  if (ratio < crop.min_ratio) {
    size.height = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(width) / crop.min_ratio));
  } else if (ratio > crop.max_ratio) {
    size.width = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(height) * crop.max_ratio));
  }
  size = {std::clamp(size.height, std::int64_t{1}, height), std::clamp(size.width, std::int64_t{1}, width)};
  return {{(height - size.height) / 2, (width - size.width) / 2}, size};
}

}  // namespace

void ImageOptions::validate() const {
  check<ConfigError>(!resize || *resize > 0, "data.image", "expected resize above 0, got ", resize.value_or(0));
  check_size(resize_to.value_or(ImageSize{1, 1}), "resize_to");
  check_size(center_crop.value_or(ImageSize{1, 1}), "center_crop");
  check<ConfigError>(!resize || !resize_to, "data.image", "expected resize or resize_to, got both");
  if (random_resized_crop) {
    const RandomResizedCrop& crop = *random_resized_crop;
    check<ConfigError>(!resize && !resize_to && !center_crop, "data.image",
                       "expected random_resized_crop alone, got resize, resize_to or center_crop too");
    check_size(crop.size, "random_resized_crop.size");
    check<ConfigError>(crop.min_scale > 0 && crop.min_scale <= crop.max_scale && crop.max_scale <= 1, "data.image",
                       "expected scales 0 < min_scale <= max_scale <= 1, got ", crop.min_scale, " and ",
                       crop.max_scale);
    check<ConfigError>(crop.min_ratio > 0 && crop.min_ratio <= crop.max_ratio && std::isfinite(crop.max_ratio),
                       "data.image", "expected ratios 0 < min_ratio <= max_ratio, got ", crop.min_ratio, " and ",
                       crop.max_ratio);
  }
}

at::Tensor image_tensor(std::string_view bytes, const formats::ImageDecodeOptions& options) {
  at::Tensor pixels;
  formats::decode_image(bytes, options, [&](std::int64_t height, std::int64_t width, std::int64_t channels) {
    pixels = at::empty({height, width, channels}, at::kByte);
    return std::span(pixels.mutable_data_ptr<std::uint8_t>(), static_cast<std::size_t>(pixels.numel()));
  });
  return pixels.permute({2, 0, 1});
}

at::Tensor resize_image(const at::Tensor& image, std::int64_t shorter_edge) {
  check_image(image);
  const std::int64_t height = image.size(1);
  const std::int64_t width = image.size(2);
  const auto longer = static_cast<std::int64_t>(static_cast<double>(shorter_edge * std::max(height, width)) /
                                                static_cast<double>(std::min(height, width)));
  return resize_image(image, width <= height ? ImageSize{longer, shorter_edge} : ImageSize{shorter_edge, longer});
}

at::Tensor resize_image(const at::Tensor& image, ImageSize size) {
  check_image(image);
  if (image.size(1) == size.height && image.size(2) == size.width) {
    return image;
  }
  return at::_upsample_bilinear2d_aa(image.unsqueeze(0), {size.height, size.width}, /*align_corners=*/false).squeeze(0);
}

at::Tensor center_crop_image(const at::Tensor& image, ImageSize size) {
  check_image(image);
  const std::int64_t missing_height = std::max(std::int64_t{0}, size.height - image.size(1));
  const std::int64_t missing_width = std::max(std::int64_t{0}, size.width - image.size(2));
  at::Tensor whole = image;
  if (missing_height > 0 || missing_width > 0) {
    whole = at::constant_pad_nd(
        image,
        {missing_width / 2, missing_width - missing_width / 2, missing_height / 2, missing_height - missing_height / 2},
        0);
  }
  return cut(whole, round_half(whole.size(1) - size.height), round_half(whole.size(2) - size.width), size);
}

at::Tensor random_resized_crop_image(const at::Tensor& image, const RandomResizedCrop& crop, Random random) {
  check_image(image);
  const auto [corner, size] = choose_part(image, crop, random);
  return resize_image(cut(image, corner[0], corner[1], size), crop.size);
}

at::Tensor read_image(std::string_view bytes, const ImageOptions& options, const SampleInfo& info) {
  at::Tensor image = image_tensor(bytes, options.decode);
  if (options.resize) {
    image = resize_image(image, *options.resize);
  }
  if (options.resize_to) {
    image = resize_image(image, *options.resize_to);
  }
  if (options.center_crop) {
    image = center_crop_image(image, *options.center_crop);
  }
  if (options.random_resized_crop) {
    image = random_resized_crop_image(image, *options.random_resized_crop, Random(info.key().fold_in(crop_stream)));
  }
  image = image.contiguous();
  return options.transform ? options.transform(std::move(image), info) : image;
}

Batch collate_images(std::vector<Sample> samples) {
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const at::Tensor& first = samples.front().input;
    const at::Tensor& image = samples[i].input;
    if (first.defined() && image.defined() && first.sizes() != image.sizes()) {
      throw CollateError(
          i, concat("[data.image] expected images of one size in a batch, got [", join(first.sizes()),
                    "] in sample 0 and [", join(image.sizes()), "] in sample ", i,
                    ": set resize_to, random_resized_crop, or resize with center_crop in the options of images"));
    }
  }
  return collate(std::move(samples));
}

}  // namespace danling::inline v0::data
