// Crops, margins and flips of images.
#pragma once

#include <danling/data/transforms/compose.hpp>
#include <danling/data/transforms/image_options.hpp>

namespace danling::inline v0::data::transforms {

struct PadOptions {
  Fill fill = {0.0};
  PaddingMode padding_mode = PaddingMode::constant;
};

/// Adds margins. (torchvision: Pad) @throws DataError, when it is called, for margins that are too wide for the mode
/// (reflect: less than the image; symmetric: at most the image), or fill values that the images' type cannot hold.
Transform pad(Padding padding, PadOptions options = {});

/// The center of each image; smaller images are padded with zeros. (torchvision: CenterCrop)
Transform center_crop(Size size);

struct RandomCropOptions {
  /// Padding applied first.
  Padding padding = 0;
  /// Pads both sides equally if an image is smaller than the crop.
  bool pad_if_needed = false;
  Fill fill = {0.0};
  PaddingMode padding_mode = PaddingMode::constant;
};

/// A random crop of each image, uniform over positions. (torchvision: RandomCrop) @throws DataError, when it is called,
/// for images smaller than `size` after padding, and as `pad`.
Transform random_crop(Size size, RandomCropOptions options = {});

/// Mirrors each image left to right with probability `p`. (torchvision: RandomHorizontalFlip)
/// @throws ConfigError for a probability outside [0, 1].
Transform random_horizontal_flip(double p = 0.5);
/// The same top to bottom. (torchvision: RandomVerticalFlip)
Transform random_vertical_flip(double p = 0.5);

}  // namespace danling::inline v0::data::transforms
