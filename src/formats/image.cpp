#include <danling/formats/image.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <formats/image_codec.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::string_view jpeg_magic = "\xff\xd8\xff";
constexpr std::string_view png_magic = "\x89PNG\r\n\x1a\n";

/// ITU-R 601-2 luma with 16 bits of fraction, as PIL rounds it.
std::uint8_t luma(int red, int green, int blue) {
  return static_cast<std::uint8_t>((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16);
}

/// Returns a * b / 255, rounded.
int multiply(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

/// Describes the first bytes of an invalid image, for messages.
std::string begin_of(std::string_view bytes) {
  if (bytes.empty()) {
    return "no bytes";
  }
  static constexpr std::array<std::pair<std::string_view, const char*>, 7> known = {{{"GIF8", "a GIF"},
                                                                                     {"BM", "a BMP"},
                                                                                     {"II*", "a TIFF"},
                                                                                     {"MM", "a TIFF"},
                                                                                     {"\x1f\x8b", "gzip data"},
                                                                                     {"RIFF", "a RIFF file (WebP)"},
                                                                                     {"<", "HTML or XML"}}};
  for (const auto& [magic, what] : known) {
    if (bytes.starts_with(magic)) {
      return what;
    }
  }
  static constexpr char digits[] = "0123456789abcdef";
  std::string out = "bytes that begin with";
  for (const char character : bytes.substr(0, 4)) {
    const auto byte = static_cast<unsigned char>(character);
    out += concat(' ', digits[byte >> 4], digits[byte & 15]);
  }
  return out;
}

ImageFormat require_format(std::string_view bytes) {
  const auto format = image_format(bytes);
  if (!format) {
    fail<DataError>("formats.image", "expected a JPEG or PNG image, got ", begin_of(bytes));
  }
  return *format;
}

/// Maps row `y`, column `x` of the oriented image to the position in the stored image.
std::pair<std::int64_t, std::int64_t> stored_at(int orientation, std::int64_t y, std::int64_t x, std::int64_t height,
                                                std::int64_t width) {
  switch (orientation) {
    case 2:
      return {y, width - 1 - x};
    case 3:
      return {height - 1 - y, width - 1 - x};
    case 4:
      return {height - 1 - y, x};
    case 5:
      return {x, y};
    case 6:
      return {height - 1 - x, y};
    case 7:
      return {height - 1 - x, width - 1 - y};
    case 8:
      return {x, width - 1 - y};
    default:
      return {y, x};
  }
}

ImageInfo read_info(ImageFormat format, std::string_view bytes, bool accept_damaged) {
#ifdef DANLING_WITH_IMAGES
  return format == ImageFormat::jpeg ? read_jpeg_info(bytes, accept_damaged) : read_png_info(bytes);
#else
  (void)bytes, (void)accept_damaged;
  return {.format = format};
#endif
}

void decode_as_stored(ImageFormat format, std::string_view bytes, const ImageDecodeOptions& options,
                      const PixelAllocator& allocate) {
#ifdef DANLING_WITH_IMAGES
  format == ImageFormat::jpeg ? decode_jpeg(bytes, options, allocate) : decode_png(bytes, options, allocate);
#else
  (void)format, (void)bytes, (void)options, (void)allocate;
#endif
}

void require_library() {
  check<DataError>(has_images(), "formats.image",
                   "expected a library that decodes images, got one built without libjpeg and libpng: build danling "
                   "with -DDANLING_WITH_IMAGES=ON");
}

}  // namespace

bool has_images() {
#ifdef DANLING_WITH_IMAGES
  return true;
#else
  return false;
#endif
}

std::optional<ImageFormat> image_format(std::string_view bytes) {
  if (bytes.starts_with(jpeg_magic)) {
    return ImageFormat::jpeg;
  }
  return bytes.starts_with(png_magic) ? std::optional(ImageFormat::png) : std::nullopt;
}

ImageInfo read_image_info(std::string_view bytes) {
  require_library();
  return read_info(require_format(bytes), bytes, /*accept_damaged=*/false);
}

Image decode_image(std::string_view bytes, const ImageDecodeOptions& options) {
  Image image;
  decode_image(bytes, options, [&](std::int64_t height, std::int64_t width, std::int64_t channels) {
    image.height = height;
    image.width = width;
    image.channels = channels;
    image.pixels.resize(static_cast<std::size_t>(height * width * channels));
    return std::span(image.pixels);
  });
  return image;
}

void decode_image(std::string_view bytes, const ImageDecodeOptions& options, const PixelAllocator& allocate) {
  require_library();
  const ImageFormat format = require_format(bytes);
  const int orientation = options.apply_orientation ? read_info(format, bytes, options.accept_damaged).orientation : 1;
  if (orientation == 1) {
    decode_as_stored(format, bytes, options, allocate);
    return;
  }
  ImageDecodeOptions stored_options = options;
  stored_options.apply_orientation = false;
  const Image stored = decode_image(bytes, stored_options);
  const bool turned = orientation >= 5;
  const std::int64_t height = turned ? stored.width : stored.height;
  const std::int64_t width = turned ? stored.height : stored.width;
  const auto channels = static_cast<std::size_t>(stored.channels);
  std::uint8_t* out = allocate(height, width, stored.channels).data();
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x, out += channels) {
      const auto [row, column] = stored_at(orientation, y, x, stored.height, stored.width);
      std::memcpy(out, stored.pixels.data() + static_cast<std::size_t>(row * stored.width + column) * channels,
                  channels);
    }
  }
}

void check_pixels(const ImageInfo& info, std::uint64_t bytes, std::uint64_t most_per_byte,
                  const ImageDecodeOptions& options, std::string_view format) {
  const std::uint64_t pixels = static_cast<std::uint64_t>(info.width) * static_cast<std::uint64_t>(info.height);
  if (pixels > options.max_pixels) {
    fail<DataError>("formats.image", "expected at most ", options.max_pixels, " pixels, got a ", format, " of ",
                    info.width, "x", info.height, ": raise max_pixels to allow it");
  }
  if (pixels / most_per_byte > bytes) {
    fail<DataError>("formats.image", "expected a sound ", format, " of ", info.width, "x", info.height, ", got ", bytes,
                    " bytes, too few for so many pixels");
  }
}

void convert_row(const std::uint8_t* in, PixelLayout layout, std::int64_t width, std::int64_t channels,
                 std::uint8_t* out) {
  const std::int64_t step = layout_channels(layout);
  for (std::int64_t x = 0; x < width; ++x, in += step, out += channels) {
    std::array<std::uint8_t, 4> rgba = {in[0], in[0], in[0], 255};
    switch (layout) {
      case PixelLayout::gray:
        break;
      case PixelLayout::gray_alpha:
        rgba[3] = in[1];
        break;
      case PixelLayout::rgba:
        rgba[3] = in[3];
        [[fallthrough]];
      case PixelLayout::rgb:
        rgba[1] = in[1];
        rgba[2] = in[2];
        break;
      case PixelLayout::inverted_cmyk:
        for (std::size_t i = 0; i < 3; ++i) {
          rgba[i] = static_cast<std::uint8_t>(std::max(0, in[3] - multiply(255 - in[i], in[3])));
        }
        break;
    }
    if (channels >= 3) {
      std::copy_n(rgba.begin(), channels, out);
    } else {
      const bool is_gray = layout == PixelLayout::gray || layout == PixelLayout::gray_alpha;
      out[0] = is_gray ? rgba[0] : luma(rgba[0], rgba[1], rgba[2]);
      if (channels == 2) {
        out[1] = rgba[3];
      }
    }
  }
}

int exif_orientation(std::string_view tiff) {
  const bool little = tiff.starts_with(std::string_view("II*\0", 4));
  if (!little && !tiff.starts_with(std::string_view("MM\0*", 4))) {
    return 1;
  }
  const auto number = [&](std::size_t at, std::size_t size) -> std::uint64_t {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value = value << 8 | static_cast<unsigned char>(tiff[at + (little ? size - 1 - i : i)]);
    }
    return value;
  };
  const auto inside = [&](std::uint64_t at, std::uint64_t size) {
    return at <= tiff.size() && size <= tiff.size() - at;
  };
  if (!inside(4, 4)) {
    return 1;
  }
  const std::uint64_t directory = number(4, 4);
  if (!inside(directory, 2)) {
    return 1;
  }
  const std::uint64_t entries = number(directory, 2);
  for (std::uint64_t i = 0; i < entries && inside(directory + 2 + 12 * i, 12); ++i) {
    const std::uint64_t entry = directory + 2 + 12 * i;
    constexpr std::uint64_t orientation_tag = 0x0112;
    constexpr std::uint64_t type_short = 3;
    if (number(entry, 2) == orientation_tag && number(entry + 2, 2) == type_short) {
      const std::uint64_t value = number(entry + 8, 2);
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  }
  return 1;
}

}  // namespace danling::inline v0::formats
