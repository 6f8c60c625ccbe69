#include <danling/data/transforms/erase.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include <data/kernels.hpp>
#include <data/transforms/images.hpp>

namespace danling::inline v0::data::transforms {

namespace {

struct Rectangle {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// Draws the rectangle of one image; nullopt if nothing is erased.
std::optional<Rectangle> draw_rectangle(Random& random, const RandomErasingOptions& options, std::int64_t height,
                                        std::int64_t width) {
  if (!random.bernoulli(options.p)) {
    return std::nullopt;
  }
  const auto area = static_cast<double>(height * width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double erased = area * random.uniform(options.scale.low, options.scale.high);
    const double aspect = std::exp(random.uniform(std::log(options.ratio.low), std::log(options.ratio.high)));
    const auto h = static_cast<std::int64_t>(std::nearbyint(std::sqrt(erased * aspect)));
    const auto w = static_cast<std::int64_t>(std::nearbyint(std::sqrt(erased / aspect)));
    if (h < height && w < width) {
      const std::int64_t top = random.randint(height - h + 1);
      return Rectangle{top, random.randint(width - w + 1), h, w};
    }
  }
  return std::nullopt;
}

void erase_in_memory(at::Tensor& images, const std::vector<std::optional<Rectangle>>& rectangles,
                     const at::Tensor& fill) {
  const std::int64_t item = static_cast<std::int64_t>(images.itemsize());
  auto* pixels = static_cast<std::byte*>(images.mutable_data_ptr());
  const auto* values = static_cast<const std::byte*>(fill.const_data_ptr());
  for (std::int64_t n = 0; n < images.size(0); ++n) {
    const auto& rectangle = rectangles[static_cast<std::size_t>(n)];
    for (std::int64_t c = 0; rectangle && c < images.size(1); ++c) {
      const std::byte* value = values + (fill.numel() == 1 ? 0 : c) * item;
      std::byte* plane = pixels + (n * images.stride(0) + c * images.stride(1)) * item;
      kernels::copy({value, 0, plane + (rectangle->top * images.stride(2) + rectangle->left) * item,
                     images.stride(2) * item, static_cast<std::size_t>(rectangle->height),
                     static_cast<std::size_t>(rectangle->width), static_cast<std::size_t>(item), 0});
    }
  }
}

at::Tensor erase_on_device(const at::Tensor& images, const std::vector<std::optional<Rectangle>>& rectangles,
                           const at::Tensor& fill) {
  const std::int64_t height = images.size(2);
  const std::int64_t width = images.size(3);
  at::Tensor lines = detail::empty_for({images.size(0), height + width}, at::kBool, images.device());
  lines.zero_();
  for (std::int64_t n = 0; n < images.size(0); ++n) {
    if (const auto& rectangle = rectangles[static_cast<std::size_t>(n)]) {
      bool* line = lines.mutable_data_ptr<bool>() + n * (height + width);
      std::fill_n(line + rectangle->top, rectangle->height, true);
      std::fill_n(line + height + rectangle->left, rectangle->width, true);
    }
  }
  lines = lines.to(images.device(), /*non_blocking=*/true);
  at::Tensor value = detail::empty_for({1, fill.numel(), 1, 1}, images.scalar_type(), images.device());
  value.copy_(fill.view({1, -1, 1, 1}));
  const at::Tensor erased = lines.narrow(1, 0, height).unsqueeze(2) & lines.narrow(1, height, width).unsqueeze(1);
  return at::where(erased.unsqueeze(1), value.to(images.device(), true), images).contiguous();
}

void put_noise(at::Tensor& images, const std::vector<std::optional<Rectangle>>& rectangles,
               std::vector<Random>& random) {
  for (std::int64_t n = 0; n < images.size(0); ++n) {
    const auto& rectangle = rectangles[static_cast<std::size_t>(n)];
    if (!rectangle || rectangle->height == 0 || rectangle->width == 0) {
      continue;
    }
    at::Tensor noise =
        detail::empty_for({images.size(1), rectangle->height, rectangle->width}, at::kFloat, images.device());
    auto* out = noise.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < noise.numel(); ++i) {
      out[i] = static_cast<float>(random[static_cast<std::size_t>(n)].normal());
    }
    images.select(0, n)
        .narrow(1, rectangle->top, rectangle->height)
        .narrow(2, rectangle->left, rectangle->width)
        .copy_(noise.to(images.device(), /*non_blocking=*/true));
  }
}

}  // namespace

Transform random_erasing(RandomErasingOptions options) {
  constexpr auto name = "random_erasing";
  detail::check_probability(options.p, name);
  check<ConfigError>(options.scale.low >= 0.0 && options.scale.low <= options.scale.high && options.scale.high <= 1.0,
                     "data.random_erasing", "expected a scale with 0 <= low <= high <= 1, got ", options.scale.low,
                     " .. ", options.scale.high);
  detail::check_range(options.ratio, std::numeric_limits<double>::infinity(), "ratio", name);
  return [options = std::move(options)](Batch batch, const BatchInfo& info) {
    at::Tensor images = detail::images_of(batch, name);
    detail::check_samples(batch, info, name);
    check<DataError>(!options.noise || images.is_floating_point(), "data.random_erasing",
                     "expected floating point images for noise, got ", c10::toString(images.scalar_type()));
    const at::Tensor fill = detail::fill_of(options.value, images, name);
    const Keys keys(info, name);
    std::vector<Random> random;
    std::vector<std::optional<Rectangle>> rectangles;
    for (std::size_t i = 0; i < static_cast<std::size_t>(images.size(0)); ++i) {
      random.push_back(keys.random(i));
      rectangles.push_back(draw_rectangle(random.back(), options, images.size(2), images.size(3)));
    }
    if (!images.is_cpu() && !options.noise) {
      return detail::with_images(std::move(batch), erase_on_device(images, rectangles, fill));
    }
    images = images.clone(at::MemoryFormat::Contiguous);
    if (options.noise) {
      put_noise(images, rectangles, random);
    } else {
      erase_in_memory(images, rectangles, fill);
    }
    return detail::with_images(std::move(batch), std::move(images));
  };
}

}  // namespace danling::inline v0::data::transforms
