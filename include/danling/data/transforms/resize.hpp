// Resizing of images: bilinear with antialiasing.
#pragma once

#include <cstdint>

#include <danling/data/transforms/compose.hpp>
#include <danling/data/transforms/image_options.hpp>

namespace danling::inline v0::data::transforms {

/// Resizes images to `size`. For floating-point numbers and integers of at most 16 bits. Computes bytes on the host as
/// bytes; rounds bytes on a device and other integers from float32. (torchvision: Resize, bilinear with antialias)
/// @throws ConfigError for a size below 1; DataError, when it is called, for other dtypes and images without a channel.
Transform resize(Size size);
/// Resizes the shorter side of images to this length and keeps the aspect ratio. (torchvision: Resize of one number)
Transform resize(std::int64_t shorter_side);

struct RandomResizedCropOptions {
  /// Crop area as a fraction of the image area.
  Range scale = {0.08, 1.0};
  /// Aspect ratio of the crop: width / height.
  Range ratio = {3.0 / 4.0, 4.0 / 3.0};
};

/// Crops each image at random and resizes the crop to `size`. If ten random crops do not fit, takes the center, with
/// the nearest allowed aspect ratio. (torchvision: RandomResizedCrop, bilinear with antialias; Szegedy et al., 2015)
/// @throws ConfigError for invalid options; DataError, when it is called, as `resize`.
Transform random_resized_crop(Size size, RandomResizedCropOptions options = {});

}  // namespace danling::inline v0::data::transforms
