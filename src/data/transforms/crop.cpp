#include <danling/data/transforms/crop.hpp>

#include <algorithm>
#include <cmath>

#include <data/transforms/images.hpp>

namespace danling::inline v0::data::transforms {

namespace {

void check_margin(std::int64_t margin, std::int64_t side, PaddingMode mode, std::string_view name) {
  const std::int64_t most = mode == PaddingMode::reflect ? side - 1 : side;
  check<DataError>(mode == PaddingMode::constant || mode == PaddingMode::edge || margin <= most, concat("data.", name),
                   "expected margins of at most ", most, " for ",
                   mode == PaddingMode::reflect ? "reflect" : "symmetric", " padding of ", side, " pixels, got ",
                   margin);
}

void check_margins(const Padding& padding, const at::Tensor& images, PaddingMode mode, std::string_view name) {
  check_margin(std::max(padding.top, padding.bottom), images.size(2), mode, name);
  check_margin(std::max(padding.left, padding.right), images.size(3), mode, name);
}

// Applies `change` to each image with probability `p`.
template <class Change>
Transform flip(double p, const char* name, const Change& change) {
  detail::check_probability(p, name);
  return [p, name, change](Batch batch, const BatchInfo& info) {
    const at::Tensor images = detail::images_of(batch, name);
    detail::check_samples(batch, info, name);
    const std::int64_t height = images.size(2);
    const std::int64_t width = images.size(3);
    const detail::Window same = {detail::window(height, 0, height, PaddingMode::constant),
                                 detail::window(width, 0, width, PaddingMode::constant)};
    detail::Window flipped = same;
    change(flipped, height, width);
    const Keys keys(info, name);
    std::vector<detail::Window> windows;
    windows.reserve(static_cast<std::size_t>(images.size(0)));
    for (std::size_t i = 0; i < static_cast<std::size_t>(images.size(0)); ++i) {
      windows.push_back(keys.random(i).bernoulli(p) ? flipped : same);
    }
    return detail::with_images(std::move(batch),
                               detail::remap(images, {height, width}, windows, detail::fill_of({0.0}, images, name)));
  };
}

}  // namespace

Transform pad(Padding padding, PadOptions options) {
  return [padding, options = std::move(options)](Batch batch, const BatchInfo&) {
    const at::Tensor images = detail::images_of(batch, "pad");
    check_margins(padding, images, options.padding_mode, "pad");
    const Size size(images.size(2) + padding.top + padding.bottom, images.size(3) + padding.left + padding.right);
    check<DataError>(size.height > 0 && size.width > 0, "data.pad", "expected margins that leave at least 1x1, got ",
                     size.height, "x", size.width);
    const detail::Window window = {detail::window(images.size(2), -padding.top, size.height, options.padding_mode),
                                   detail::window(images.size(3), -padding.left, size.width, options.padding_mode)};
    return detail::with_images(std::move(batch),
                               detail::remap(images, size, {&window, 1}, detail::fill_of(options.fill, images, "pad")));
  };
}

Transform center_crop(Size size) {
  detail::check_size(size, "center_crop");
  return [size](Batch batch, const BatchInfo&) {
    const at::Tensor images = detail::images_of(batch, "center_crop");
    // torchvision rounds halves to even when it crops, and down when it pads.
    const auto begin = [](std::int64_t have, std::int64_t want) {
      return want > have ? -((want - have) / 2)
                         : static_cast<std::int64_t>(std::nearbyint(static_cast<double>(have - want) / 2.0));
    };
    const auto line = [&](std::int64_t have, std::int64_t want) {
      return detail::window(have, begin(have, want), want, PaddingMode::constant);
    };
    const detail::Window window = {line(images.size(2), size.height), line(images.size(3), size.width)};
    return detail::with_images(
        std::move(batch), detail::remap(images, size, {&window, 1}, detail::fill_of({0.0}, images, "center_crop")));
  };
}

Transform random_crop(Size size, RandomCropOptions options) {
  detail::check_size(size, "random_crop");
  return [size, options = std::move(options)](Batch batch, const BatchInfo& info) {
    const at::Tensor images = detail::images_of(batch, "random_crop");
    detail::check_samples(batch, info, "random_crop");
    Padding padding = options.padding;
    std::int64_t height = images.size(2) + padding.top + padding.bottom;
    std::int64_t width = images.size(3) + padding.left + padding.right;
    if (options.pad_if_needed) {
      const std::int64_t rows = std::max<std::int64_t>(size.height - height, 0);
      const std::int64_t columns = std::max<std::int64_t>(size.width - width, 0);
      padding = {padding.left + columns, padding.top + rows, padding.right + columns, padding.bottom + rows};
      height += 2 * rows;
      width += 2 * columns;
    }
    check<DataError>(size.height <= height && size.width <= width, "data.random_crop", "expected images of at least ",
                     size.height, "x", size.width, " with their padding, got ", height, "x", width);
    check_margins(padding, images, options.padding_mode, "random_crop");
    const Keys keys(info, "random_crop");
    std::vector<detail::Window> windows;
    windows.reserve(static_cast<std::size_t>(images.size(0)));
    for (std::size_t i = 0; i < static_cast<std::size_t>(images.size(0)); ++i) {
      Random random = keys.random(i);
      const std::int64_t top = random.randint(height - size.height + 1);
      const std::int64_t left = random.randint(width - size.width + 1);
      windows.push_back({detail::window(images.size(2), top - padding.top, size.height, options.padding_mode),
                         detail::window(images.size(3), left - padding.left, size.width, options.padding_mode)});
    }
    return detail::with_images(
        std::move(batch), detail::remap(images, size, windows, detail::fill_of(options.fill, images, "random_crop")));
  };
}

Transform random_horizontal_flip(double p) {
  return flip(p, "random_horizontal_flip", [](detail::Window& window, std::int64_t, std::int64_t width) {
    window.columns = detail::reversed(window.columns, width);
  });
}

Transform random_vertical_flip(double p) {
  return flip(p, "random_vertical_flip", [](detail::Window& window, std::int64_t height, std::int64_t) {
    window.rows = detail::reversed(window.rows, height);
  });
}

}  // namespace danling::inline v0::data::transforms
