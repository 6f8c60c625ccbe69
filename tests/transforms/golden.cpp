#include <algorithm>
#include <numeric>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <danling/checkpoint/file.hpp>
#include <danling/data/transforms.hpp>

#include <support/catch.hpp>

#include "data/transforms/images.hpp"

namespace {

// Expected values: tests/golden/transforms.py, which calls torchvision.
namespace transforms_golden_test {

using namespace danling::data::transforms;
namespace images = danling::data::transforms::detail;
using danling::Batch;
using danling::data::BatchInfo;
using danling::data::RandomKey;

const std::vector<std::pair<std::string, PaddingMode>> modes = {{"constant", PaddingMode::constant},
                                                                {"edge", PaddingMode::edge},
                                                                {"reflect", PaddingMode::reflect},
                                                                {"symmetric", PaddingMode::symmetric}};

at::Tensor golden(const std::string& name) {
  static const danling::State file = danling::load_file(DANLING_SOURCE_DIR "/tests/golden/data/transforms.pth");
  return file.at(name).tensor();
}

BatchInfo info_of(std::int64_t size, std::uint64_t seed = 0) {
  BatchInfo info;
  info.indices.resize(static_cast<std::size_t>(size));
  std::iota(info.indices.begin(), info.indices.end(), 0);
  info.epoch_key = RandomKey::of(seed);
  info.batch_key = RandomKey::of(seed).fold_in(1);
  return info;
}

at::Tensor applied(const Transform& transform, const std::string& input) {
  const at::Tensor from = golden(input);
  const at::Tensor before = from.clone();
  Batch out = transform({.input = from}, info_of(from.size(0)));
  CHECK(at::equal(from, before));
  CHECK(out.input.is_contiguous());
  return out.input;
}

void check_same(const Transform& transform, const std::string& input, const std::string& expected) {
  INFO(expected);
  const at::Tensor got = applied(transform, input);
  CHECK(got.scalar_type() == golden(expected).scalar_type());
  CHECK(at::equal(got, golden(expected)));
}

TEST_CASE("transforms: numbers as torchvision's ToDtype and Normalize, bit for bit", "[data]") {
  const std::vector<double> mean = {0.485, 0.456, 0.406};
  const std::vector<double> std = {0.229, 0.224, 0.225};
  check_same(to_float(), "bytes", "to_float_bytes");
  check_same(to_float(), "shorts", "to_float_shorts");
  check_same(to_float(), "floats", "floats");
  check_same(normalize(mean, std), "bytes", "normalize_bytes");
  check_same(normalize(mean, std), "to_float_bytes", "normalize_bytes");
  check_same(normalize(mean, std), "floats", "normalize_floats");
  const Batch half = normalize(mean, std)({.input = golden("floats").to(at::kHalf)}, {});
  CHECK(at::equal(half.input, golden("normalize_half")));
}

TEST_CASE("transforms: pad and center_crop as torchvision's", "[data]") {
  for (const auto& [name, mode] : modes) {
    check_same(pad({1, 2, 4, 3}, {.padding_mode = mode}), "bytes", "pad_" + name);
  }
  check_same(pad({3, 1}, {.fill = {7, 8, 9}}), "bytes", "pad_fill");
  check_same(pad({-1, 2, -3, -2}, {.fill = {5}}), "bytes", "pad_negative");
  check_same(center_crop(4), "bytes", "center_crop_4x4");
  check_same(center_crop({5, 3}), "bytes", "center_crop_5x3");
  check_same(center_crop({9, 13}), "bytes", "center_crop_9x13");
  check_same(center_crop({10, 6}), "bytes", "center_crop_10x6");
  check_same(center_crop({7, 10}), "bytes", "center_crop_7x10");
}

TEST_CASE("transforms: flips as torchvision's", "[data]") {
  check_same(random_horizontal_flip(1.0), "bytes", "horizontal_flip");
  check_same(random_vertical_flip(1.0), "bytes", "vertical_flip");
  check_same(random_horizontal_flip(0.0), "bytes", "bytes");
}

TEST_CASE("transforms: each random_crop is one of torchvision's crops, and all of them occur", "[data]") {
  for (const auto& [name, mode] : modes) {
    INFO(name);
    const at::Tensor crops = golden("crops_" + name);  // [places, image, ...]
    const Transform transform = random_crop({8, 12}, {.padding = 2, .padding_mode = mode});
    std::set<std::int64_t> seen;
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const at::Tensor got = transform({.input = golden("bytes")}, info_of(3, seed)).input;
      for (std::int64_t image = 0; image < 3; ++image) {
        std::int64_t place = 0;
        while (place < crops.size(0) && !at::equal(crops[place][image], got[image])) {
          ++place;
        }
        REQUIRE(place < crops.size(0));
        seen.insert(place);
      }
    }
    CHECK(static_cast<std::int64_t>(seen.size()) == crops.size(0));
  }
}

void check_near(const at::Tensor& got, const std::string& expected, double tolerance) {
  INFO(expected);
  const at::Tensor want = golden(expected);
  REQUIRE(got.scalar_type() == want.scalar_type());
  REQUIRE(got.sizes() == want.sizes());
  CHECK(got.to(at::kDouble).sub(want.to(at::kDouble)).abs().max().item<double>() <= tolerance);
}

// Each instruction set sums the products of weights and pixels in an order of its own, but bytes in integers. The
// floating point numbers are below 4.
TEST_CASE("transforms: resize as torchvision's, floating point numbers within 2e-6", "[data]") {
  for (const Size size : {Size(3, 4), Size(14, 20), Size(5, 17), Size(7, 10)}) {
    const std::string name = danling::detail::concat(size.height, "x", size.width);
    check_near(applied(resize(size), "floats"), "resize_floats_" + name, 2e-6);
    check_same(resize(size), "bytes", "resize_bytes_" + name);
  }
  check_near(applied(resize({3, 4}), "shorts"), "resize_shorts_3x4", 1);  // resized as float32 and rounded
  check_near(applied(resize(5), "floats"), "resize_short_side", 2e-6);
  check_near(resize(5)({.input = golden("floats").mT()}, {}).input, "resize_short_side_tall", 2e-6);
}

TEST_CASE("transforms: strided images and [N, H, W] give what contiguous [N, C, H, W] does", "[data]") {
  const at::Tensor bytes = golden("bytes");
  const std::vector<Transform> transforms = {pad({1, 2, 3, 4}, {.padding_mode = PaddingMode::reflect}),
                                             center_crop(5),
                                             random_crop(6, {.padding = 1}),
                                             random_horizontal_flip(),
                                             random_vertical_flip(),
                                             random_erasing({.p = 1.0}),
                                             normalize({0.5}, {0.2}),
                                             to_float(),
                                             resize(4),
                                             random_resized_crop(5),
                                             cutmix()};
  const at::Tensor target = at::full({3, 2}, 0.5F);
  const auto input = [&](const Transform& transform, const at::Tensor& from) {
    return transform({.input = from, .target = target}, info_of(3, 7)).input;
  };
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    INFO(i);
    const at::Tensor expected = input(transforms[i], bytes);
    CHECK(at::equal(input(transforms[i], bytes.contiguous(at::MemoryFormat::ChannelsLast)), expected));
    CHECK(at::equal(input(transforms[i], at::stack({bytes, bytes}, 3).select(3, 1)), expected));
    CHECK(at::equal(input(transforms[i], at::stack({bytes, bytes}, 4).select(4, 0)), expected));
    CHECK(at::equal(input(transforms[i], bytes.select(1, 2)), input(transforms[i], bytes.narrow(1, 2, 1)).squeeze(1)));
  }
}

TEST_CASE("transforms: pixels moved by our loops equal those moved by operations on a device", "[data]") {
  const auto line = [](std::int64_t size, PaddingMode mode, bool flip) {
    const images::Runs runs = images::window(size, -3, size + 5, mode);
    return flip ? images::reversed(runs, size + 5) : runs;
  };
  for (const at::ScalarType dtype : {at::kByte, at::kHalf, at::kInt, at::kDouble, at::kComplexDouble}) {
    const at::Tensor from = golden("bytes").to(dtype);
    const at::Tensor fill = at::full({1}, 9, dtype);
    for (const auto& [name, mode] : modes) {
      INFO(name << " " << c10::toString(dtype));
      const std::vector<images::Window> each = {{line(7, mode, false), line(10, mode, true)},
                                                {line(7, mode, true), line(10, mode, false)},
                                                {line(7, mode, true), line(10, mode, true)}};
      CHECK(at::equal(images::remap(from, {12, 15}, each, fill), images::remap_on_device(from, {12, 15}, each, fill)));
      const std::span<const images::Window> one(each.data(), 1);
      CHECK(at::equal(images::remap(from, {12, 15}, one, fill), images::remap_on_device(from, {12, 15}, one, fill)));
    }
  }
}

}  // namespace transforms_golden_test

}  // namespace
