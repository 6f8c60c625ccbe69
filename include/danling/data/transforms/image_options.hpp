// Sizes, margins and fill values of image transforms, with torchvision's conventions.
#pragma once

#include <cstdint>
#include <vector>

namespace danling::inline v0::data::transforms {

/// Size in pixels; one number is a square.
struct Size {
  Size(std::int64_t both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor): as in torchvision
  Size(std::int64_t height_, std::int64_t width_) : height(height_), width(width_) {}

  std::int64_t height;
  std::int64_t width;
};

/// Margins in pixels: one number, {left and right, top and bottom}, or {left, top, right, bottom}. Negative margins
/// crop.
struct Padding {
  Padding(std::int64_t all)  // NOLINT(google-explicit-constructor): as in torchvision
      : left(all), top(all), right(all), bottom(all) {}
  Padding(std::int64_t left_right, std::int64_t top_bottom)
      : left(left_right), top(top_bottom), right(left_right), bottom(top_bottom) {}
  Padding(std::int64_t left_, std::int64_t top_, std::int64_t right_, std::int64_t bottom_)
      : left(left_), top(top_), right(right_), bottom(bottom_) {}

  std::int64_t left;
  std::int64_t top;
  std::int64_t right;
  std::int64_t bottom;
};

/// Content of the margins: the fill value; the nearest pixel (aaa|abc); the mirror image without (cb|abc) or with
/// (ba|abc) the outermost pixel.
enum class PaddingMode { constant, edge, reflect, symmetric };

/// One value, or one per channel, in the images' value range (0 .. 255 for bytes).
using Fill = std::vector<double>;

/// A closed interval.
struct Range {
  double low;
  double high;
};

}  // namespace danling::inline v0::data::transforms
