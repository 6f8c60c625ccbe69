// Random erasing: rectangles of images replaced by a value or by noise.
#pragma once

#include <danling/data/transforms/compose.hpp>
#include <danling/data/transforms/image_options.hpp>

namespace danling::inline v0::data::transforms {

struct RandomErasingOptions {
  double p = 0.5;
  /// Erased area as a fraction of the image's.
  Range scale = {0.02, 0.33};
  /// Height of the rectangle divided by its width.
  Range ratio = {0.3, 3.3};
  Fill value = {0.0};
  /// Standard normal numbers instead of `value`, one for each pixel and channel; for floating point images.
  bool noise = false;
};

/// Erases a rectangle of each image with probability `p`. Erases none if ten random rectangles did not fit.
/// (torchvision: RandomErasing; Zhong et al., "Random erasing data augmentation", 2017)
/// @throws ConfigError for invalid options; DataError, when it is called, as `pad`.
Transform random_erasing(RandomErasingOptions options = {});

}  // namespace danling::inline v0::data::transforms
