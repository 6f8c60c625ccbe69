// Common parts of image transforms: the batch as images, and copies of pixels between images.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <danling/core/error.hpp>
#include <danling/data/transforms/compose.hpp>
#include <danling/data/transforms/image_options.hpp>

namespace danling::inline v0::data::transforms::detail {

/// Returns the input as [N, C, H, W], with C = 1 if it is [N, H, W]. @throws DataError for other shapes.
at::Tensor images_of(const Batch& batch, std::string_view name);
/// Returns the batch with these images, as [N, H, W] if its input was.
Batch with_images(Batch batch, at::Tensor images);
/// @throws DataError when `info` has fewer samples than the batch.
void check_samples(const Batch& batch, const BatchInfo& info, std::string_view name);
/// Returns `fill` as [1] or [C] on the host, in the images' dtype. @throws DataError when it does not fit.
at::Tensor fill_of(const Fill& fill, const at::Tensor& images, std::string_view name);
/// Allocates host memory from which a copy to `device` does not wait.
at::Tensor empty_for(at::IntArrayRef shape, at::ScalarType dtype, at::Device device);

void check_probability(double p, std::string_view name);
void check_size(Size size, std::string_view name);
/// Checks that both numbers are positive, and the first is at most the second.
void check_range(Range range, double most, std::string_view what, std::string_view name);

/// `count` pixels from pixel `to` on, copied from `from`, `from + step`, ... of the source; step 0 repeats one pixel,
/// and a negative `from` is the fill value.
struct Run {
  std::int64_t to;
  std::int64_t count;
  std::int64_t from;
  std::int64_t step;
};
using Runs = c10::SmallVector<Run, 3>;

/// Returns pixels `begin` .. `begin + count - 1` of a line of `size` pixels, extended on both sides by `mode`.
Runs window(std::int64_t size, std::int64_t begin, std::int64_t count, PaddingMode mode);
/// Returns the same line of `count` pixels in reverse.
Runs reversed(const Runs& runs, std::int64_t count);

/// Source of each pixel of an image.
struct Window {
  Runs rows;
  Runs columns;
};

/// Creates images [N, C, height, width]; `windows` has one per image, or one for all.
at::Tensor remap(const at::Tensor& images, Size size, std::span<const Window> windows, const at::Tensor& fill);
/// The same by LibTorch operations, on any device, without waiting for it.
at::Tensor remap_on_device(const at::Tensor& images, Size size, std::span<const Window> windows,
                           const at::Tensor& fill);

}  // namespace danling::inline v0::data::transforms::detail
