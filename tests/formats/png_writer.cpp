// encode_png: read back by libpng.
#include <danling/formats/image.hpp>

#include <support/catch.hpp>
#include <support/error.hpp>

using danling::formats::encode_png;

TEST_CASE("encode_png: the decoder returns the same pixels", "[formats][image]") {
  if (!danling::formats::has_images()) {
    WARN("skipped: built without libpng");
    return;
  }
  for (const std::int64_t channels : {1, 3}) {
    for (const auto& [width, height] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 3}, {300, 200}}) {
      std::vector<std::uint8_t> pixels(static_cast<std::size_t>(width * height * channels));
      for (std::size_t i = 0; i < pixels.size(); ++i) {
        pixels[i] = static_cast<std::uint8_t>(i * i / 7 + i);
      }
      const std::string png = encode_png(std::as_bytes(std::span(pixels)), width, height, channels);
      const auto image = danling::formats::decode_image(png);
      CHECK(image.channels == channels);
      CHECK(image.width == width);
      CHECK(image.height == height);
      CHECK(image.pixels == pixels);
    }
  }
}

TEST_CASE("encode_png: another number of bytes is refused", "[formats][image]") {
  CHECK(danling_test::error_of<danling::DataError>([] { encode_png({}, 2, 2, 3); }) ==
        "[formats.encode_png] expected pixels [height, width, 1 or 3], got 0 bytes for [2, 2, 3]");
}
