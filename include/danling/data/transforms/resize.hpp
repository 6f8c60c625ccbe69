// Images of another size: bilinear, with antialiasing.
#pragma once

#include <cstdint>

#include <danling/data/transforms/compose.hpp>
#include <danling/data/transforms/image_options.hpp>

namespace danling::inline v0::data::transforms {

/// Images of `size`. For floating point numbers and integers of at most 16 bits; bytes are computed as bytes on the
/// host, other integers, and bytes on a device, rounded from float32. (torchvision: Resize, bilinear with antialias)
/// @throws ConfigError for a size below 1; DataError, when it is called, for other types and images without a channel.
Transform resize(Size size);
/// Images whose shorter side has this length, of the same proportions. (torchvision: Resize of one number)
Transform resize(std::int64_t shorter_side);

struct RandomResizedCropOptions {
  /// Of the crop's area, as a share of the image's.
  Range scale = {0.08, 1.0};
  /// Of its width divided by its height.
  Range ratio = {3.0 / 4.0, 4.0 / 3.0};
};

/// A random part of each image, as an image of `size`. Where ten parts in turn did not fit: the middle, as near to the
/// ratios as it can be. (torchvision: RandomResizedCrop, bilinear with antialias; Szegedy et al., 2015)
/// @throws ConfigError for options that do not fit; DataError, when it is called, as `resize`.
Transform random_resized_crop(Size size, RandomResizedCropOptions options = {});

}  // namespace danling::inline v0::data::transforms
