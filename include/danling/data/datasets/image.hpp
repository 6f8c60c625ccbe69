// Images as tensors: decoded, resized and cropped one by one, for image folders and shards, before images are batched.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/data/batch_info.hpp>
#include <danling/data/random.hpp>
#include <danling/data/sample.hpp>
#include <danling/formats/image.hpp>

namespace danling::inline v0::data {

struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// A random crop of random area and shape, resized (torchvision: `RandomResizedCrop`).
struct RandomResizedCrop {
  ImageSize size = {};
  /// Crop area as a fraction of the image's.
  double min_scale = 0.08;
  double max_scale = 1.0;
  /// Crop width divided by its height.
  double min_ratio = 3.0 / 4.0;
  double max_ratio = 4.0 / 3.0;
};

/// Conversion of an image to a tensor, in the order of the fields.
struct ImageOptions {
  formats::ImageDecodeOptions decode = {.channels = formats::ImageChannels::rgb};
  /// Resizes the shorter edge to this length and keeps the shape (torchvision: `Resize(n)`).
  std::optional<std::int64_t> resize = {};
  /// Resizes to exactly this size (torchvision: `Resize((h, w))`).
  std::optional<ImageSize> resize_to = {};
  /// Crops the center; smaller images get a black border.
  std::optional<ImageSize> center_crop = {};
  /// Replaces the three above. Keyed to the sample.
  std::optional<RandomResizedCrop> random_resized_crop = {};
  /// Maps uint8 [C, H, W] to the tensor of the batch, in several threads at a time.
  std::function<at::Tensor(at::Tensor image, const SampleInfo& info)> transform = {};

  /// @throws ConfigError when sizes or ranges are invalid, or exclude each other.
  void validate() const;
};

/// A JPEG or PNG as uint8 [C, H, W], whose memory is [H, W, C]. @throws DataError: see `formats::decode_image`
at::Tensor image_tensor(std::string_view bytes, const formats::ImageDecodeOptions& options = {});

/// `image` uint8 or floating [C, H, W], bilinear and antialiased, rounded as torchvision's.
at::Tensor resize_image(const at::Tensor& image, std::int64_t shorter_edge);
at::Tensor resize_image(const at::Tensor& image, ImageSize size);
at::Tensor center_crop_image(const at::Tensor& image, ImageSize size);
/// Tries ten random crops, then takes the largest in the center; draws two or four numbers per attempt.
at::Tensor random_resized_crop_image(const at::Tensor& image, const RandomResizedCrop& crop, Random random);

/// Decodes and applies `options`; contiguous unless a transform returns something else.
at::Tensor read_image(std::string_view bytes, const ImageOptions& options, const SampleInfo& info);

/// Stacks images and targets. @throws DataError when the sizes differ, with the options that help.
Batch collate_images(std::vector<Sample> samples);

}  // namespace danling::inline v0::data
