#include <danling/formats/image.hpp>

#include <atomic>
#include <cstdlib>
#include <thread>

#include <nlohmann/json.hpp>

#include <danling/core/error.hpp>

#include <support/child.hpp>
#include <support/error.hpp>
#include <support/temp_dir.hpp>

namespace {

namespace image_test {

using danling::detail::concat;
using danling::formats::decode_image;
using danling::formats::Image;
using danling::formats::image_format;
using danling::formats::ImageChannels;
using danling::formats::ImageDecodeOptions;
using danling::formats::ImageFormat;
using danling::formats::read_image_info;
using danling_test::error_of;
using nlohmann::json;

std::string refusal(const std::string& bytes, const ImageDecodeOptions& options = {}) {
  return error_of<danling::DataError>([&] { decode_image(bytes, options); });
}

#ifdef DANLING_WITH_IMAGES

std::string from_hex(const std::string& digits) {
  std::string out;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return out;
}

/// The cases that tests/golden/images.py wrote with PIL.
const json& golden() {
  static const json cases =
      json::parse(danling_test::read_file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/data/images.json"));
  return cases;
}

std::string file(const std::string& name) {
  for (const auto& item : golden()) {
    if (item["name"] == name) {
      return from_hex(item["file"]);
    }
  }
  FAIL("no image " << name);
  return {};
}

/// The largest difference; -1 when there are not as many numbers.
int difference(const Image& image, const std::string& expected) {
  if (image.pixels.size() != expected.size()) {
    return -1;
  }
  int most = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, std::abs(int{image.pixels[i]} - int{static_cast<std::uint8_t>(expected[i])}));
  }
  return most;
}

std::string with_size(std::string png, std::uint32_t width, std::uint32_t height) {
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) {
      png[at + i] = static_cast<char>(value >> (24 - 8 * i));
    }
  };
  put(16, width);
  put(20, height);
  std::uint32_t crc = ~0U;
  for (std::size_t i = 12; i < 29; ++i) {
    crc ^= static_cast<std::uint8_t>(png[i]);
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320U : 0U);
    }
  }
  put(29, ~crc);
  return png;
}

TEST_CASE("decode_image: every kind of PNG equals PIL, every kind of JPEG within two levels", "[formats]") {
  for (const auto& item : golden()) {
    const std::string name = item["name"];
    const std::string bytes = from_hex(item["file"]);
    const bool is_png = name.ends_with(".png");
    INFO(name);
    CHECK(image_format(bytes) == (is_png ? ImageFormat::png : ImageFormat::jpeg));
    const auto pixels = item["width"].get<std::size_t>() * item["height"].get<std::size_t>();
    const auto info = read_image_info(bytes);
    CHECK(info.width == item["width"]);
    CHECK(info.height == item["height"]);
    CHECK(info.orientation == item["orientation"]);
    CHECK(static_cast<std::size_t>(info.channels) * 2 * pixels == item["as_is"].get<std::string>().size());
    for (const auto& [key, channels] :
         {std::pair("as_is", ImageChannels::as_is), std::pair("gray", ImageChannels::gray),
          std::pair("rgb", ImageChannels::rgb), std::pair("rgba", ImageChannels::rgba)}) {
      INFO(key);
      const Image image = decode_image(bytes, {.channels = channels});
      CHECK(image.width == item["width"]);
      CHECK(image.height == item["height"]);
      CHECK(image.pixels.size() == pixels * static_cast<std::size_t>(image.channels));
      const int most = difference(image, from_hex(item[key]));
      CHECK(most >= 0);
      CHECK(most <= (is_png ? 0 : 2));
    }
  }
}

TEST_CASE("decode_image: an EXIF orientation is applied when asked for", "[formats]") {
  int turned = 0;
  for (const auto& item : golden()) {
    if (item["orientation"] == 1) {
      continue;
    }
    INFO(item["name"].get<std::string>());
    const Image image = decode_image(from_hex(item["file"]), {.apply_orientation = true});
    CHECK(image.width == item["turned"]["width"]);
    CHECK(image.height == item["turned"]["height"]);
    CHECK(difference(image, from_hex(item["turned"]["pixels"])) == 0);
    ++turned;
  }
  CHECK(turned == 8);
}

TEST_CASE("decode_image: an image that ends early is refused wherever it ends", "[formats]") {
  for (const char* name : {"rgb_420.jpg", "rgb_progressive.jpg", "gray.jpg", "rgb8.png", "rgb8_interlaced.png"}) {
    const std::string bytes = file(name);
    INFO(name);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::string text = refusal(bytes.substr(0, size));
      INFO(size << ": " << text);
      CHECK(text.starts_with("[formats.image] expected a "));
      if (size > 100 && name[0] == 'g') {
        CHECK(text ==
              concat("[formats.image] expected a sound JPEG, got: it ends early (near byte ", size, " of ", size, ")"));
      }
    }
  }
}

TEST_CASE("decode_image: any changed byte gives an image of the size in its header or an error, never more",
          "[formats]") {
  for (const char* name : {"rgb_420.jpg", "rgb_progressive.jpg", "cmyk.jpg", "rgb8_interlaced.png", "palette4.png"}) {
    const std::string bytes = file(name);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (const int change : {0x01, 0x80, 0xff}) {
        std::string damaged = bytes;
        damaged[i] = static_cast<char>(damaged[i] ^ change);
        try {
          const Image image = decode_image(damaged, {.channels = ImageChannels::rgb, .max_pixels = 1 << 16});
          CHECK(image.pixels.size() == static_cast<std::size_t>(image.width * image.height * 3));
        } catch (const danling::DataError& error) {
          CHECK(std::string_view(error.what()).starts_with("[formats.image] expected "));
        }
      }
    }
  }
}

TEST_CASE("decode_image: a changed byte in the pixels of a PNG is always noticed", "[formats]") {
  const std::string bytes = file("rgb8.png");
  for (std::size_t i = bytes.find("IDAT"); i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    INFO(i);
    CHECK(refusal(damaged).starts_with("[formats.image] expected a sound PNG, got: "));
  }
}

TEST_CASE("decode_image: a damaged JPEG is decoded as far as it goes when asked for", "[formats]") {
  const std::string bytes = file("gray.jpg");
  const Image whole = decode_image(bytes);
  const Image half = decode_image(bytes.substr(0, bytes.size() - 30), {.accept_damaged = true});
  REQUIRE(half.pixels.size() == whole.pixels.size());
  CHECK(std::equal(half.pixels.begin(), half.pixels.begin() + 8, whole.pixels.begin()));
  CHECK(half.pixels != whole.pixels);
}

TEST_CASE("decode_image: what libjpeg warns of without losing pixels is no damage, as for PIL", "[formats]") {
  // Their pixels are compared with PIL's among all others.
  for (const char* name : {"gray_extra_bytes.jpg", "gray_unknown_jfif.jpg", "cmyk_unknown_adobe.jpg"}) {
    INFO(name);
    CHECK_NOTHROW(decode_image(file(name)));
    CHECK_NOTHROW(decode_image(file(name), {.apply_orientation = true}));
  }
  CHECK(decode_image(file("gray_extra_bytes.jpg")).pixels == decode_image(file("gray.jpg")).pixels);
}

TEST_CASE("decode_image: a damaged JPEG is accepted and turned at a time", "[formats]") {
  const std::string bytes = file("gray_exif6.jpg");
  const std::string cut = bytes.substr(0, bytes.size() - 30);
  CHECK_FALSE(refusal(cut, {.apply_orientation = true}).empty());
  const Image turned = decode_image(cut, {.apply_orientation = true, .accept_damaged = true});
  CHECK(turned.width == 11);
  CHECK(turned.height == 18);
}

/// The most address space that the process had, in KiB.
std::int64_t peak_memory() {
  const std::string status = danling_test::read_file("/proc/self/status");
  return std::atoll(status.c_str() + status.find("VmPeak:") + 7);
}

TEST_CASE("read_image_info: a chunk that claims gigabytes takes no memory", "[formats]") {
  std::string claiming = file("rgb8_turned.png");
  CHECK(read_image_info(claiming).orientation == 6);
  claiming.replace(claiming.find("eXIf") - 4, 4, "\x7f\xff\xff\xff");
  CHECK(refusal(claiming, {.apply_orientation = true}).find("it ends early") != std::string::npos);
  danling_test::Child child([&](const auto&) {  // a process of its own has a peak of its own
    const std::int64_t before = peak_memory();
    try {
      read_image_info(claiming);
    } catch (const danling::DataError&) {
      return peak_memory() - before < (std::int64_t{1} << 20) ? 0 : 1;
    }
    return 2;
  });
  CHECK(child.wait() == 0);
}

TEST_CASE("decode_image: what claims more pixels than allowed, or than its bytes can hold, takes no memory",
          "[formats]") {
  const std::string png = file("rgb8.png");
  const auto never = [](std::int64_t, std::int64_t, std::int64_t) -> std::span<std::uint8_t> {
    FAIL("memory was asked for");
    return {};
  };
  const auto text = [&](const std::string& bytes, const ImageDecodeOptions& options) {
    return error_of<danling::DataError>([&] { decode_image(bytes, options, never); });
  };
  CHECK(text(png, {.max_pixels = 197}) ==
        "[formats.image] expected at most 197 pixels, got a PNG of 18x11: raise max_pixels to allow it");
  CHECK(text(file("gray.jpg"), {.max_pixels = 197}) ==
        "[formats.image] expected at most 197 pixels, got a JPEG of 18x11: raise max_pixels to allow it");
  CHECK(decode_image(png, {.max_pixels = 198}).width == 18);
  CHECK(text(with_size(png, 10000, 10000), {}) == concat("[formats.image] expected a sound PNG of 10000x10000, "
                                                         "got ",
                                                         png.size(), " bytes, too few for so many pixels"));
  std::string jpeg = file("gray.jpg");
  const std::size_t frame = jpeg.find("\xff\xc0");
  jpeg.replace(frame + 5, 4, "\x20\x20\x20\x20");
  CHECK(text(jpeg, {}) == concat("[formats.image] expected a sound JPEG of 8224x8224, got ", jpeg.size(),
                                 " bytes, too few for so many pixels"));
}

TEST_CASE("decode_image: what is no JPEG or PNG is refused by what it is", "[formats]") {
  CHECK(refusal("") == "[formats.image] expected a JPEG or PNG image, got no bytes");
  CHECK(refusal("GIF89a...") == "[formats.image] expected a JPEG or PNG image, got a GIF");
  CHECK(refusal("<html>") == "[formats.image] expected a JPEG or PNG image, got HTML or XML");
  CHECK(refusal("\x01\xfetext") ==
        "[formats.image] expected a JPEG or PNG image, got bytes that begin with 01 fe 74 65");
  CHECK(image_format("\xff\xd8") == std::nullopt);
}

TEST_CASE("decode_image: threads decode sound and damaged images at a time", "[formats]") {
  const std::string sound = file("rgb_420.jpg");
  const std::string png = file("rgba8_interlaced.png");
  const Image expected = decode_image(sound);
  const Image expected_png = decode_image(png);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        wrong += decode_image(sound).pixels != expected.pixels;
        wrong += decode_image(png).pixels != expected_png.pixels;
        try {
          decode_image(sound.substr(0, static_cast<std::size_t>(200 + 40 * t)));
          ++wrong;
        } catch (const danling::DataError&) {
        }
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(wrong == 0);
}

#else

TEST_CASE("decode_image: a library built without decoders says so", "[formats]") {
  CHECK(refusal("\xff\xd8\xff") ==
        "[formats.image] expected a library that decodes images, got one built without libjpeg and libpng: build "
        "danling with -DDANLING_WITH_IMAGES=ON");
}

#endif

}  // namespace image_test

}  // namespace
