// Random erasing: replaces rectangles of images with a value or noise.
#pragma once

#include <danling/data/transforms/compose.hpp>
#include <danling/data/transforms/image_options.hpp>

namespace danling::inline v0::data::transforms {

struct RandomErasingOptions {
  double p = 0.5;
  /// Erased area as a fraction of the image area.
  Range scale = {0.02, 0.33};
  /// Aspect ratio of the rectangle: height / width.
  Range ratio = {0.3, 3.3};
  Fill value = {0.0};
  /// Fills with standard normal numbers instead of `value`, one per pixel and channel; for floating-point images.
  bool noise = false;
};

/// Erases a rectangle of each image with probability `p`; erases nothing if ten random rectangles did not fit.
/// (torchvision: RandomErasing; Zhong et al., "Random erasing data augmentation", 2017)
/// @throws ConfigError for invalid options; DataError, when it is called, as `pad`.
Transform random_erasing(RandomErasingOptions options = {});

}  // namespace danling::inline v0::data::transforms
