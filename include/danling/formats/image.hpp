// Decodes JPEG and PNG images, by content, not by name; encodes PNG.
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

/// Channels of the output: as in the file (1 to 4), or 1, 3 or 4.
enum class ImageChannels { as_is, gray, rgb, rgba };

struct ImageDecodeOptions {
  ImageChannels channels = ImageChannels::as_is;
  /// Refuses images with more pixels by their header, before allocating memory.
  std::uint64_t max_pixels = std::uint64_t{1} << 27;
  /// Applies the EXIF orientation. PIL and torchvision leave the image as stored.
  bool apply_orientation = false;
  /// Decodes a truncated or partly damaged JPEG as far as possible, with gray for missing pixels; false: throws. (PIL
  /// refuses truncated files unless LOAD_TRUNCATED_IMAGES is set, and decodes damaged ones.) Stray bytes and unknown
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

/// Returns memory for [height, width, channels] bytes, which is not checked.
using PixelAllocator =
    std::function<std::span<std::uint8_t>(std::int64_t height, std::int64_t width, std::int64_t channels)>;

/// Returns true if the library was built with libjpeg and libpng. Without them `read_image_info` and `decode_image`
/// throw a DataError.
bool has_images();

/// Detects the format by the first bytes; returns nullopt for other formats.
std::optional<ImageFormat> image_format(std::string_view bytes);

/// Reads only the header. @throws DataError if the bytes are not JPEG or PNG, or the header is damaged
ImageInfo read_image_info(std::string_view bytes);

/// Decodes a whole image to 8 bits per channel, like PIL's `convert`: expands palettes, converts CMYK to RGB, drops
/// alpha or adds it as 255, and converts colours to gray by ITU-R 601; a JPEG's gray is its luminance. 16-bit samples
/// keep their upper 8 bits (PIL clips 16-bit gray at 255 instead). Colour profiles and gamma are not applied. The file
/// size bounds the memory beyond the pixels. Several threads may decode at a time.
/// @throws DataError with the reason if the bytes are not JPEG or PNG, are damaged or truncated, or the header has more
/// pixels than `max_pixels` or than the bytes can encode
Image decode_image(std::string_view bytes, const ImageDecodeOptions& options = {});
/// Decodes into memory from `allocate`, which it calls once, after validating the header.
void decode_image(std::string_view bytes, const ImageDecodeOptions& options, const PixelAllocator& allocate);

/// Encodes pixels [height, width, channels] of 8 bits as a PNG file; one channel is gray, three are RGB.
/// @throws DataError for other numbers of channels, or if `pixels` has another size
std::string encode_png(std::span<const std::byte> pixels, std::int64_t width, std::int64_t height,
                       std::int64_t channels);

}  // namespace danling::inline v0::formats
