// Shared functions of the image decoders.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <span>
#include <string_view>

#include <danling/core/error.hpp>
#include <danling/formats/image.hpp>

namespace danling::inline v0::formats {

/// Pixel layout of a decoder's output; the values are bytes per pixel, except inverted_cmyk.
enum class PixelLayout { gray = 1, gray_alpha = 2, rgb = 3, rgba = 4, inverted_cmyk = 5 };

inline std::int64_t layout_channels(PixelLayout layout) {
  return layout == PixelLayout::inverted_cmyk ? 4 : static_cast<std::int64_t>(layout);
}

/// Returns the number of channels to decode for an image with `as_is` channels.
inline std::int64_t num_channels(ImageChannels channels, std::int64_t as_is) {
  return channels == ImageChannels::as_is  ? as_is
         : channels == ImageChannels::gray ? 1
         : channels == ImageChannels::rgb  ? 3
                                           : 4;
}

/// Converts one row of pixels: `out` has `channels` numbers for each of `width` pixels.
void convert_row(const std::uint8_t* in, PixelLayout layout, std::int64_t width, std::int64_t channels,
                 std::uint8_t* out);

/// Returns the EXIF orientation in the first directory of a TIFF header; 1 if there is none.
int exif_orientation(std::string_view tiff);

/// Refuses more pixels than allowed, or than `bytes` can encode at `most_per_byte` pixels per byte.
void check_pixels(const ImageInfo& info, std::uint64_t bytes, std::uint64_t most_per_byte,
                  const ImageDecodeOptions& options, std::string_view format);

#ifdef DANLING_WITH_IMAGES
ImageInfo read_jpeg_info(std::string_view bytes, bool accept_damaged);
ImageInfo read_png_info(std::string_view bytes);
void decode_jpeg(std::string_view bytes, const ImageDecodeOptions& options, const PixelAllocator& allocate);
void decode_png(std::string_view bytes, const ImageDecodeOptions& options, const PixelAllocator& allocate);
#endif

}  // namespace danling::inline v0::formats
