// Writes PNG images by zlib, so that a build without libpng can write them too. Format: PNG specification, 3rd edition.
#include <vector>

#include <zlib.h>

#include <danling/core/error.hpp>
#include <danling/formats/image.hpp>

namespace danling::inline v0::formats {
namespace {

constexpr std::string_view png_where = "formats.encode_png";

void put_number(std::string& out, std::uint64_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    out += static_cast<char>(value >> static_cast<unsigned>(shift));
  }
}

void put_chunk(std::string& out, std::string_view type, std::string_view data) {
  put_number(out, data.size());
  const std::size_t checked = out.size();
  out += type;
  out += data;
  put_number(out, crc32_z(0, reinterpret_cast<const Bytef*>(out.data() + checked), out.size() - checked));
}

// Subtracts the row above from each row (the filter "Up"), since photos then compress better.
std::string filtered(std::span<const std::byte> pixels, std::size_t row) {
  constexpr char up = 2;
  std::string out;
  out.reserve(pixels.size() + pixels.size() / row);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    if (i % row == 0) {
      out += up;
    }
    const int above = i < row ? 0 : std::to_integer<int>(pixels[i - row]);
    out += static_cast<char>(std::to_integer<int>(pixels[i]) - above);
  }
  return out;
}

}  // namespace

std::string encode_png(std::span<const std::byte> pixels, std::int64_t width, std::int64_t height,
                       std::int64_t channels) {
  constexpr std::int64_t most = 0x7fffffff;
  check<DataError>(width > 0 && height > 0 && width <= most && height <= most && (channels == 1 || channels == 3) &&
                       pixels.size() == static_cast<std::uint64_t>(width) * static_cast<std::uint64_t>(height) *
                                            static_cast<std::uint64_t>(channels),
                   png_where, "expected pixels [height, width, 1 or 3], got ", pixels.size(), " bytes for [", height,
                   ", ", width, ", ", channels, "]");
  const std::string rows = filtered(pixels, static_cast<std::size_t>(width * channels));
  std::string packed(compressBound(rows.size()), '\0');
  uLongf size = packed.size();
  check<DataError>(compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                             reinterpret_cast<const Bytef*>(rows.data()), rows.size(), /*level=*/6) == Z_OK,
                   png_where, "expected zlib to compress ", rows.size(), " bytes, got an error");
  packed.resize(size);

  std::string header;
  put_number(header, static_cast<std::uint64_t>(width));
  put_number(header, static_cast<std::uint64_t>(height));
  header += '\x08';                         // bits per number
  header += channels == 1 ? '\0' : '\x02';  // gray, or colours
  header.append(3, '\0');                   // deflate, adaptive filters, not interlaced
  std::string out = "\x89PNG\r\n\x1a\n";
  put_chunk(out, "IHDR", header);
  put_chunk(out, "IDAT", packed);
  put_chunk(out, "IEND", "");
  return out;
}

}  // namespace danling::inline v0::formats
