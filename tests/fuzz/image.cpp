// JPEG and PNG images: pixels as many as the header says, or an error; orientations only turn them.
#include <danling/formats/image.hpp>

#include <danling/core/error.hpp>

#include "target.hpp"

namespace danling_fuzz {

namespace {
constexpr std::uint64_t most_pixels = std::uint64_t{1} << 20;
}

// libpng's and libjpeg's own tables; what a byte may claim is bounded by `most_pixels`: coefficients of a progressive
// JPEG (2 bytes for each of 4 numbers) and two copies of the pixels.
const Allowance allowance{(std::size_t{1} << 24) + 24 * most_pixels, 64};

void run(std::string_view input) {
  using namespace danling::formats;
  const ImageDecodeOptions options{.channels = ImageChannels::as_is, .max_pixels = most_pixels};
  ImageDecodeOptions kinder = options;
  kinder.channels = ImageChannels::rgb;
  kinder.apply_orientation = true;
  kinder.accept_damaged = true;
  try {
    const Image image = decode_image(input, options);
    const ImageInfo info = read_image_info(input);
    require(image.width == info.width && image.height == info.height && image.channels == info.channels,
            "an image as its header says");
    require(image.pixels.size() == static_cast<std::size_t>(image.width * image.height * image.channels),
            "as many numbers as there are pixels and channels");
  } catch (const danling::DataError&) {
    (void)decode_image(input, kinder);
    throw;
  }
  const Image turned = decode_image(input, kinder);
  require(turned.channels == 3, "three channels where they are asked for");
  for (const auto channels : {ImageChannels::gray, ImageChannels::rgba}) {
    kinder.channels = channels;
    const Image again = decode_image(input, kinder);
    require(again.width == turned.width && again.height == turned.height, "one size in all channels");
  }
}

}  // namespace danling_fuzz
