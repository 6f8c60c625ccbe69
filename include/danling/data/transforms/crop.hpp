// Crops, margins and flips of images.
#pragma once

#include <danling/data/transforms/compose.hpp>
#include <danling/data/transforms/image_options.hpp>

namespace danling::inline v0::data::transforms {

struct PadOptions {
  Fill fill = {0.0};
  PaddingMode padding_mode = PaddingMode::constant;
};

/// Adds margins. (torchvision: Pad)
/// @throws DataError, when it is called, for margins that are too wide for the mode (reflect: less than the image;
/// symmetric: at most the image), or fill values that the images' dtype cannot represent.
Transform pad(Padding padding, PadOptions options = {});

/// Crops the center of each image; pads smaller images with zeros. (torchvision: CenterCrop)
Transform center_crop(Size size);

struct RandomCropOptions {
  /// Padding applied first.
  Padding padding = 0;
  /// Pads both sides equally if an image is smaller than the crop.
  bool pad_if_needed = false;
  Fill fill = {0.0};
  PaddingMode padding_mode = PaddingMode::constant;
};

/// Crops each image at a uniformly random position. (torchvision: RandomCrop)
/// @throws DataError, when it is called, for images smaller than `size` after padding, and as `pad`.
Transform random_crop(Size size, RandomCropOptions options = {});

/// Flips each image left to right with probability `p`. (torchvision: RandomHorizontalFlip)
/// @throws ConfigError for a probability outside of [0, 1].
Transform random_horizontal_flip(double p = 0.5);
/// Flips each image top to bottom with probability `p`. (torchvision: RandomVerticalFlip)
Transform random_vertical_flip(double p = 0.5);

}  // namespace danling::inline v0::data::transforms
