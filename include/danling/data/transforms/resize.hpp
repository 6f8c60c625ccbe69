// Images of another size: bilinear, with antialiasing.
#pragma once

#include <cstdint>

#include <danling/data/transforms/compose.hpp>
#include <danling/data/transforms/image_options.hpp>

namespace danling::inline v0::data::transforms {

/// Images of `size`. For floating point numbers and integers of at most 16 bits. Bytes on the host are computed as
/// bytes; bytes on a device and other integers are rounded from float32. (torchvision: Resize, bilinear with antialias)
/// @throws ConfigError for a size below 1; DataError, when it is called, for other types and images without a channel.
Transform resize(Size size);
/// Images whose shorter side has this length, of the same proportions. (torchvision: Resize of one number)
Transform resize(std::int64_t shorter_side);

struct RandomResizedCropOptions {
  /// Crop area as a fraction of the image's.
  Range scale = {0.08, 1.0};
  /// Crop width divided by its height.
  Range ratio = {3.0 / 4.0, 4.0 / 3.0};
};

/// A random crop of each image, resized to `size`. If ten random crops did not fit: the center, as near to the ratios
/// as possible. (torchvision: RandomResizedCrop, bilinear with antialias; Szegedy et al., 2015)
/// @throws ConfigError for invalid options; DataError, when it is called, as `resize`.
Transform random_resized_crop(Size size, RandomResizedCropOptions options = {});

}  // namespace danling::inline v0::data::transforms
