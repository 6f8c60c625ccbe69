// Decodes PNG images by libpng.
#ifdef DANLING_WITH_IMAGES

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

#include <png.h>
#include <zlib.h>

#include <formats/image_codec.hpp>

namespace danling::inline v0::formats {
namespace {

// Deflate's maximum ratio.
constexpr std::uint64_t most_bits_per_byte = std::uint64_t{8} * 1032;

/// libpng's objects. Errors store their text in `message` and jump to libpng's jump buffer; functions that set it own
/// no resources.
struct PngState {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string_view bytes;
  std::size_t offset = 0;
  std::array<char, 200> message{};

  PngState() = default;
  ~PngState() { png_destroy_read_struct(&png, &info, nullptr); }
  PngState(const PngState&) = delete;
  PngState& operator=(const PngState&) = delete;
};

extern "C" {
void png_failed(png_structp png, png_const_charp message) {
  auto& state = *static_cast<PngState*>(png_get_error_ptr(png));
  std::snprintf(state.message.data(), state.message.size(), "%s", message);
  png_longjmp(png, 1);
}

// Ignores warnings: they concern chunks without pixels. Damage to other chunks is an error.
void png_warned(png_structp, png_const_charp) {}

void png_reads(png_structp png, png_bytep out, std::size_t count) {
  auto& state = *static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state.bytes.size() - state.offset) {
    state.offset = state.bytes.size();
    png_error(png, "it ends early");
  }
  std::memcpy(out, state.bytes.data() + state.offset, count);
  state.offset += count;
}
}  // extern "C"

// Each of the following functions returns false after an error.

bool read_header(PngState& state) {
  state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, png_failed, png_warned);
  state.info = state.png == nullptr ? nullptr : png_create_info_struct(state.png);
  if (state.info == nullptr) {
    std::snprintf(state.message.data(), state.message.size(), "no memory, or another libpng than at compile time");
    return false;
  }
  if (setjmp(png_jmpbuf(state.png)) != 0) {
    return false;
  }
  png_set_read_fn(state.png, &state, png_reads);
  // Skips texts, profiles and EXIF: libpng would allocate their declared size before reading them.
  png_set_keep_unknown_chunks(state.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  static constexpr std::array<png_byte, 5> used = {'t', 'R', 'N', 'S', 0};
  png_set_keep_unknown_chunks(state.png, PNG_HANDLE_CHUNK_AS_DEFAULT, used.data(), 1);
  png_read_info(state.png, state.info);
  return true;
}

/// Returns the first valid eXIf chunk before the pixels; empty if there is none. (PNG specification: a chunk is length,
/// type, data, and the CRC of type and data.)
std::string_view exif_of(std::string_view png) {
  constexpr std::size_t around = 12;
  const auto number = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (const char byte : png.substr(at, 4)) {
      value = value << 8 | static_cast<unsigned char>(byte);
    }
    return value;
  };
  for (std::size_t at = 8; png.size() - at >= around;) {
    const std::size_t size = number(at);
    if (size > png.size() - at - around) {
      break;
    }
    const std::string_view checked = png.substr(at + 4, size + 4);
    if (checked.starts_with("IDAT")) {
      break;
    }
    if (checked.starts_with("eXIf") &&
        crc32_z(0, reinterpret_cast<const unsigned char*>(checked.data()), checked.size()) == number(at + 8 + size)) {
      return checked.substr(4);
    }
    at += around + size;
  }
  return {};
}

ImageInfo info_of(const PngState& state) {
  ImageInfo info;
  info.format = ImageFormat::png;
  info.width = png_get_image_width(state.png, state.info);
  info.height = png_get_image_height(state.png, state.info);
  const png_byte color = png_get_color_type(state.png, state.info);
  const bool alpha = (color & PNG_COLOR_MASK_ALPHA) != 0 || png_get_valid(state.png, state.info, PNG_INFO_tRNS) != 0;
  info.channels = ((color & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1) + (alpha ? 1 : 0);
  return info;
}

/// Sets libpng's output to `channels` of 8 bits in the file's colours.
bool start(PngState& state, std::int64_t channels, bool has_color, std::size_t& row_bytes) {
  if (setjmp(png_jmpbuf(state.png)) != 0) {
    return false;
  }
  png_set_expand(state.png);  // expands palettes, fewer than 8 bits, and transparent colours
  png_set_strip_16(state.png);
  if (channels >= 3 && !has_color) {
    png_set_gray_to_rgb(state.png);
  }
  if (channels == 1 || channels == 3) {
    png_set_strip_alpha(state.png);
  } else {
    png_set_add_alpha(state.png, 0xff, PNG_FILLER_AFTER);
  }
  png_set_interlace_handling(state.png);
  png_read_update_info(state.png, state.info);
  row_bytes = png_get_rowbytes(state.png, state.info);
  return true;
}

/// Reads all rows and the end of the file, to detect truncation.
bool read_rows(PngState& state, png_bytepp rows) {
  if (setjmp(png_jmpbuf(state.png)) != 0) {
    return false;
  }
  png_read_image(state.png, rows);
  png_read_end(state.png, nullptr);
  return true;
}

[[noreturn]] void refuse(const PngState& state) {
  fail<DataError>("formats.image", "expected a sound PNG, got: ", std::string_view(state.message.data()),
                  " (near byte ", state.offset, " of ", state.bytes.size(), ")");
}

}  // namespace

ImageInfo read_png_info(std::string_view bytes) {
  PngState state;
  state.bytes = bytes;
  if (!read_header(state)) {
    refuse(state);
  }
  ImageInfo info = info_of(state);
  info.orientation = exif_orientation(exif_of(bytes));
  return info;
}

void decode_png(std::string_view bytes, const ImageDecodeOptions& options, const PixelAllocator& allocate) {
  PngState state;
  state.bytes = bytes;
  if (!read_header(state)) {
    refuse(state);
  }
  const ImageInfo info = info_of(state);
  const int bits = png_get_bit_depth(state.png, state.info) * png_get_channels(state.png, state.info);
  check_pixels(info, bytes.size(), most_bits_per_byte / static_cast<std::uint64_t>(bits), options, "PNG");
  const std::int64_t channels = num_channels(options.channels, info.channels);
  const bool has_color = info.channels >= 3;
  const std::int64_t decoded = has_color && channels < 3 ? channels + 2 : channels;  // libpng's gray differs from PIL's
  std::size_t row_bytes = 0;
  if (!start(state, decoded, has_color, row_bytes)) {
    refuse(state);
  }
  check<DataError>(row_bytes == static_cast<std::size_t>(info.width * decoded), "formats.image", "expected rows of ",
                   info.width * decoded, " bytes from libpng, got ", row_bytes);

  std::vector<std::uint8_t> colors;
  std::span<std::uint8_t> pixels;
  if (decoded == channels) {
    pixels = allocate(info.height, info.width, channels);
  } else {
    colors.resize(row_bytes * static_cast<std::size_t>(info.height));
    pixels = colors;
  }
  std::vector<png_bytep> rows(static_cast<std::size_t>(info.height));
  for (std::size_t y = 0; y < rows.size(); ++y) {
    rows[y] = pixels.data() + y * row_bytes;
  }
  if (!read_rows(state, rows.data())) {
    refuse(state);
  }
  if (decoded != channels) {
    const std::span<std::uint8_t> out = allocate(info.height, info.width, channels);
    for (std::size_t y = 0; y < rows.size(); ++y) {
      convert_row(rows[y], static_cast<PixelLayout>(decoded), info.width, channels,
                  out.data() + y * static_cast<std::size_t>(info.width * channels));
    }
  }
}

}  // namespace danling::inline v0::formats

#endif
