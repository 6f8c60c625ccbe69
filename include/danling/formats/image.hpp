// JPEG and PNG images as bytes of pixels. The content determines the format, not the name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace danling::inline v0::formats {

enum class ImageFormat { jpeg, png };

/// Numbers per pixel: those of the file (1 to 4), or 1, 3 or 4.
enum class ImageChannels { as_is, gray, rgb, rgba };

struct ImageDecodeOptions {
  ImageChannels channels = ImageChannels::as_is;
  /// Images with more pixels in the header are refused before memory is allocated.
  std::uint64_t max_pixels = std::uint64_t{1} << 27;
  /// Applies the EXIF orientation. PIL and torchvision leave the image as stored.
  bool apply_orientation = false;
  /// Decodes a truncated or partly damaged JPEG as far as possible; missing pixels are gray. Otherwise it is an error.
  /// (PIL refuses truncated files without LOAD_TRUNCATED_IMAGES, and decodes damaged ones.) Stray bytes and unknown
  /// versions of JFIF lose no pixels and are never errors.
  bool accept_damaged = false;
};

/// Fields of the header.
struct ImageInfo {
  ImageFormat format = ImageFormat::jpeg;
  /// As stored, before any orientation.
  std::int64_t width = 0;
  std::int64_t height = 0;
  /// Channels as decoded with `ImageChannels::as_is`: 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha.
  std::int64_t channels = 0;
  /// EXIF orientation, 1 to 8; 1 is as stored, and the default.
  int orientation = 1;
};

struct Image {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::int64_t channels = 0;
  /// [height, width, channels], row by row.
  std::vector<std::uint8_t> pixels;
};

/// Returns memory for [height, width, channels] bytes.
using PixelAllocator =
    std::function<std::span<std::uint8_t>(std::int64_t height, std::int64_t width, std::int64_t channels)>;

/// Whether the library was built with libjpeg and libpng. Without them the functions below throw.
bool has_images();

/// The format of the first bytes; nothing for other formats.
std::optional<ImageFormat> image_format(std::string_view bytes);

/// Reads the header only. @throws DataError when the bytes are no JPEG or PNG, or the header is damaged.
ImageInfo read_image_info(std::string_view bytes);

/// Decodes a whole image to 8 bits per number. Like PIL's `convert`: palettes become their colours, CMYK becomes RGB,
/// alpha is dropped or added as 255, colours become gray by ITU-R 601; a JPEG's gray is its luminance. 16 bits become
/// their upper 8, also gray ones, which PIL cuts off at 255 instead. Colour profiles and gamma are not applied. Memory
/// beyond the pixels is bounded by the size of the file. Several threads may decode at a time.
/// @throws DataError with the reason when the bytes are no JPEG or PNG, are damaged, end early or have a header with
/// more pixels than `max_pixels` or than they can hold
Image decode_image(std::string_view bytes, const ImageDecodeOptions& options = {});
/// The same into memory from `allocate`; called once, after the header was validated.
void decode_image(std::string_view bytes, const ImageDecodeOptions& options, const PixelAllocator& allocate);

/// The PNG file of pixels [height, width, channels], 8 bits each; one channel is gray, three are red, green and blue.
/// @throws DataError for other numbers of channels, or when `pixels` has another size
std::string encode_png(std::span<const std::byte> pixels, std::int64_t width, std::int64_t height,
                       std::int64_t channels);

}  // namespace danling::inline v0::formats
