// Image files to tensors: decodes, resizes and crops images one by one, before batching.
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

/// A crop of random area and aspect ratio, resized (torchvision: `RandomResizedCrop`).
struct RandomResizedCrop {
  ImageSize size = {};
  /// Crop area as a fraction of the image area.
  double min_scale = 0.08;
  double max_scale = 1.0;
  /// Aspect ratio of the crop: width / height.
  double min_ratio = 3.0 / 4.0;
  double max_ratio = 4.0 / 3.0;
};

/// Conversion of an image to a tensor, in the order of the members.
struct ImageOptions {
  formats::ImageDecodeOptions decode = {.channels = formats::ImageChannels::rgb};
  /// Resizes the shorter edge to this length and keeps the aspect ratio (torchvision: `Resize(n)`).
  std::optional<std::int64_t> resize = {};
  /// Resizes to exactly this size (torchvision: `Resize((h, w))`).
  std::optional<ImageSize> resize_to = {};
  /// Crops the center; smaller images get a black border.
  std::optional<ImageSize> center_crop = {};
  /// Replaces the three options above. Random numbers are keyed to the sample.
  std::optional<RandomResizedCrop> random_resized_crop = {};
  /// Maps uint8 [C, H, W] to the tensor in the batch; called from several threads at a time.
  std::function<at::Tensor(at::Tensor image, const SampleInfo& info)> transform = {};

  /// @throws ConfigError for invalid or mutually exclusive options.
  void validate() const;
};

/// Decodes a JPEG or PNG to uint8 [C, H, W], stored as [H, W, C]. @throws DataError: see `formats::decode_image`
at::Tensor image_tensor(std::string_view bytes, const formats::ImageDecodeOptions& options = {});

/// Resizes a uint8 or floating-point image [C, H, W], bilinear with antialiasing, rounded as in torchvision.
at::Tensor resize_image(const at::Tensor& image, std::int64_t shorter_edge);
at::Tensor resize_image(const at::Tensor& image, ImageSize size);
at::Tensor center_crop_image(const at::Tensor& image, ImageSize size);
/// Tries ten random crops, then takes the largest one in the center; draws two or four numbers per attempt.
at::Tensor random_resized_crop_image(const at::Tensor& image, const RandomResizedCrop& crop, Random random);

/// Decodes an image and applies `options`; contiguous unless a transform returns another layout.
at::Tensor read_image(std::string_view bytes, const ImageOptions& options, const SampleInfo& info);

/// Stacks images and targets. @throws DataError when sizes differ, with the options that help.
Batch collate_images(std::vector<Sample> samples);

}  // namespace danling::inline v0::data
