#include <danling/data/transforms.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include <danling/data/loader.hpp>
#include <danling/data/map_batches.hpp>
#include <danling/data/tensor_dataset.hpp>

#include <support/error.hpp>

namespace {

namespace transforms_test {

using namespace danling::data::transforms;
using danling::Batch;
using danling::ConfigError;
using danling::DataError;
using danling::data::BatchInfo;
using danling::data::Random;
using danling::data::RandomKey;
using danling_test::error_of;

static_assert(TransformOf<Transform, Batch> && TransformOf<Compose<Transform, Transform>, Batch>);
static_assert(!TransformOf<int, Batch> && !TransformOf<Compose<int>, Batch>);

BatchInfo info_of(std::vector<std::int64_t> records, std::uint64_t seed = 5, std::int64_t position = 0) {
  BatchInfo info;
  info.indices = std::move(records);
  info.epoch_key = RandomKey::of(seed);
  info.batch_key = RandomKey::of(seed).fold_in(1000).fold_in(static_cast<std::uint64_t>(position));
  return info;
}

std::vector<std::int64_t> first(std::int64_t count) {
  std::vector<std::int64_t> records(static_cast<std::size_t>(count));
  std::iota(records.begin(), records.end(), 0);
  return records;
}

/// Images of 2x9x8 whose pixels are all different from each other's.
at::Tensor image(std::int64_t record) {
  return at::arange(record * 1000, record * 1000 + 144, at::kFloat).view({2, 9, 8});
}

Batch batch_of_records(const std::vector<std::int64_t>& records) {
  std::vector<at::Tensor> images;
  for (const std::int64_t record : records) {
    images.push_back(image(record).unsqueeze(0));
  }
  return {.input = at::cat(images)};
}

/// Returns each record after the transform, by index.
template <class T>
std::map<std::int64_t, at::Tensor> augmented(const T& transform,
                                             const std::vector<std::vector<std::int64_t>>& batches) {
  std::map<std::int64_t, at::Tensor> out;
  for (const auto& records : batches) {
    const Batch batch = transform(batch_of_records(records), info_of(records));
    for (std::size_t i = 0; i < records.size(); ++i) {
      out[records[i]] = batch.input[static_cast<std::int64_t>(i)];
    }
  }
  return out;
}

bool same(const std::map<std::int64_t, at::Tensor>& a, const std::map<std::int64_t, at::Tensor>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && at::equal(x.second, y.second);
         });
}

auto everything() {
  return compose(random_crop({8, 6}, {.padding = 2, .padding_mode = PaddingMode::reflect}), random_horizontal_flip(),
                 random_vertical_flip(0.3), random_resized_crop({7, 5}), random_erasing({.p = 0.7, .noise = true}),
                 normalize({0.5, 0.25}, {2.0, 3.0}));
}

TEST_CASE("transforms: a record becomes the same in every layout of batches", "[data]") {
  const auto transform = everything();
  const auto whole = augmented(transform, {{0, 1, 2, 3, 4, 5, 6, 7}});
  CHECK(same(whole, augmented(transform, {{0, 1, 2, 3}, {4, 5, 6, 7}})));
  CHECK(same(whole, augmented(transform, {{6, 2, 7}, {0}, {5, 4, 3, 1}})));
  CHECK(same(whole, augmented(transform, {{7, 6, 5, 4, 3, 2, 1, 0}})));
  // At the same time in two threads.
  std::map<std::int64_t, at::Tensor> other;
  std::thread thread([&] { other = augmented(transform, {{0, 1, 2, 3, 4, 5, 6, 7}}); });
  CHECK(same(whole, augmented(transform, {{0, 1, 2, 3, 4, 5, 6, 7}})));
  thread.join();
  CHECK(same(whole, other));
  // Two records differ in more than their pixels, and another epoch gives others.
  const auto where = [](const at::Tensor& tensor) { return tensor - tensor.min(); };
  CHECK_FALSE(at::equal(where(whole.at(0)), where(whole.at(1))));
  const Batch later = transform(batch_of_records({0}), info_of({0}, 6));
  CHECK_FALSE(at::equal(later.input[0], whole.at(0)));
}

TEST_CASE("transforms: through loaders a record becomes the same whatever the batch size and the workers", "[data]") {
  std::vector<std::int64_t> records = first(20);
  const auto dataset = danling::data::map_batches(
      std::make_shared<danling::data::TensorDataset>(batch_of_records(records).input, at::arange(20, at::kLong)),
      everything());
  const auto epoch = [&](std::int64_t batch_size, std::int64_t num_workers) {
    danling::data::Loader<Batch> loader(
        dataset, {.batch_size = batch_size, .shuffle = true, .seed = 3, .num_workers = num_workers});
    std::map<std::int64_t, at::Tensor> out;
    for (Batch& batch : loader) {
      for (std::int64_t i = 0; i < batch.size(); ++i) {
        out[batch.target[i].item<std::int64_t>()] = batch.input[i];
      }
    }
    return out;
  };
  const auto whole = epoch(20, 0);
  CHECK(whole.size() == 20);
  CHECK(same(whole, epoch(3, 0)));
  CHECK(same(whole, epoch(4, 2)));
}

TEST_CASE("transforms: the last batch of a stream may have fewer samples than its info tells", "[data]") {
  const Batch few = everything()(batch_of_records({0, 1, 2}), info_of(first(8)));
  const auto whole = augmented(everything(), {{0, 1, 2}});
  CHECK(few.size() == 3);
  CHECK(at::equal(few.input[2], whole.at(2)));
}

TEST_CASE("transforms: where records repeat, the keys of the samples decide", "[data]") {
  BatchInfo info = info_of({3, 3, 3, 3});
  const auto transform = random_crop(3);
  at::Tensor out = transform(batch_of_records(info.indices), info).input;
  CHECK(at::equal(out[0], out[1]));
  info.sample_keys = RandomKey::of(9).split(4);
  out = transform(batch_of_records(info.indices), info).input;
  CHECK_FALSE((at::equal(out[0], out[1]) && at::equal(out[1], out[2]) && at::equal(out[2], out[3])));
}

TEST_CASE("transforms: each place of a chain has random numbers of its own", "[data]") {
  // Drawing the same numbers, two flips would undo each other and flips across would agree.
  const std::int64_t count = 400;
  const at::Tensor images = at::arange(4, at::kFloat).view({1, 1, 2, 2}).repeat({count, 1, 1, 1});
  const auto flipped = [&](const auto& transform, std::int64_t row, std::int64_t column) {
    return transform({.input = images}, info_of(first(count))).input.select(2, row).select(2, column).flatten();
  };
  const at::Tensor twice = flipped(compose(random_horizontal_flip(), random_horizontal_flip()), 0, 0);
  CHECK(std::abs(twice.sum().item<double>() - 200) < 50);
  const at::Tensor across = flipped(compose(random_horizontal_flip(), random_vertical_flip()), 0, 0);
  for (const double corner : {0.0, 1.0, 2.0, 3.0}) {
    CHECK(std::abs((across == corner).sum().item<double>() - 100) < 45);
  }
  // Alone, without a chain, two kinds differ too.
  const Batch alone =
      random_vertical_flip()(random_horizontal_flip()({.input = images}, info_of(first(count))), info_of(first(count)));
  const at::Tensor corner = alone.input.select(2, 0).select(2, 0).flatten();
  CHECK(std::abs((corner == 0.0).sum().item<double>() - 100) < 45);
}

TEST_CASE("compose: gives user's own transforms keys of their place, for batches of any type", "[data]") {
  std::vector<std::uint64_t> drawn;
  const auto draw = [&](at::Tensor batch, const BatchInfo& info) {
    Random random = info.random(0);
    drawn.push_back(random());
    Random of_batch = info.batch_random();
    drawn.push_back(of_batch());
    CHECK(info.indices == std::vector<std::int64_t>{4, 2});
    return batch;
  };
  const BatchInfo info = info_of({4, 2});
  CHECK(compose(draw, compose(draw, draw), draw)(at::ones({2}), info).sum().item<double>() == 2.0);
  Random plain = info.random(0);
  drawn.push_back(plain());
  CHECK(std::set<std::uint64_t>(drawn.begin(), drawn.end()).size() == drawn.size());
  CHECK(compose()(at::ones({2}), info).sum().item<double>() == 2.0);
}

TEST_CASE("transforms: flips occur with their probability", "[data]") {
  const std::int64_t count = 20'000;
  const at::Tensor images = at::arange(2, at::kByte).view({1, 1, 2}).repeat({count, 1, 1});
  for (const double p : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    const Batch batch = random_horizontal_flip(p)({.input = images}, info_of(first(count)));
    const double share = batch.input.select(2, 0).to(at::kDouble).mean().item<double>();
    CHECK(std::abs(share - p) <= 5 * std::sqrt(p * (1 - p) / static_cast<double>(count)));
  }
}

TEST_CASE("random_crop: every place is equally probable", "[data]") {
  const std::int64_t count = 12'000;
  const at::Tensor images = at::arange(1, 13, at::kShort).view({1, 3, 4}).repeat({count, 1, 1});
  const Batch batch = random_crop({1, 1}, {.padding = {1, 0, 0, 0}})({.input = images}, info_of(first(count)));
  REQUIRE(batch.input.sizes() == at::IntArrayRef({count, 1, 1}));
  const at::Tensor counts = batch.input.flatten().to(at::kLong).bincount();
  REQUIRE(counts.numel() == 13);
  CHECK(std::abs(counts[0].item<double>() - 2400) < 250);  // three of fifteen places lie in the margin
  for (std::int64_t i = 1; i < 13; ++i) {
    CHECK(std::abs(counts[i].item<double>() - 800) < 150);
  }
  // Images that are too small are padded where that is asked for, as much on both sides.
  const Batch padded = random_crop({3, 6}, {.pad_if_needed = true, .fill = {-1}})({.input = images.narrow(0, 0, 200)},
                                                                                  info_of(first(200)));
  REQUIRE(padded.input.sizes() == at::IntArrayRef({200, 3, 6}));
  CHECK((padded.input == -1).sum().item<std::int64_t>() == 200 * 3 * 2);
}

TEST_CASE("random_erasing: rectangles have the areas and ratios that are asked for", "[data]") {
  const std::int64_t count = 3'000;
  const at::Tensor images = at::zeros({count, 2, 40, 60}, at::kByte);
  const Batch batch = random_erasing({.p = 0.25, .scale = {0.1, 0.2}, .ratio = {0.5, 2.0}, .value = {3, 7}})(
      {.input = images}, info_of(first(count)));
  CHECK(images.sum().item<std::int64_t>() == 0);
  const at::Tensor mask = batch.input.select(1, 0) == 3;
  CHECK(at::equal(batch.input.select(1, 1), mask.to(at::kByte) * 7));
  const at::Tensor heights = mask.any(2).sum(1).to(at::kDouble);
  const at::Tensor widths = mask.any(1).sum(1).to(at::kDouble);
  CHECK(at::equal(heights * widths, mask.flatten(1).sum(1).to(at::kDouble)));  // rectangles
  const at::Tensor erased = heights > 0;
  CHECK(std::abs(erased.to(at::kDouble).mean().item<double>() - 0.25) < 0.04);
  const at::Tensor area = (heights * widths).masked_select(erased) / 2400.0;
  CHECK(area.min().item<double>() > 0.09);
  CHECK(area.max().item<double>() < 0.21);
  CHECK(std::abs(area.mean().item<double>() - 0.15) < 0.01);
  const at::Tensor ratio = (heights / widths).masked_select(erased);
  CHECK(ratio.min().item<double>() > 0.45);
  CHECK(ratio.max().item<double>() < 2.2);
  CHECK(std::abs(ratio.log().mean().item<double>()) < 0.06);
  // Where no rectangle fits, none is erased.
  const Batch whole = random_erasing({.p = 1.0, .scale = {1.0, 1.0}, .value = {1}})({.input = images.narrow(0, 0, 5)},
                                                                                    info_of(first(5)));
  CHECK(whole.input.sum().item<std::int64_t>() == 0);
}

TEST_CASE("random_erasing: noise is standard normal", "[data]") {
  const Batch batch = random_erasing({.p = 1.0, .scale = {0.3, 0.3}, .noise = true})(
      {.input = at::full({200, 3, 20, 20}, 100.0F)}, info_of(first(200)));
  const at::Tensor noise = batch.input.masked_select(batch.input != 100.0F);
  REQUIRE(noise.numel() > 50'000);
  CHECK(std::abs(noise.mean().item<double>()) < 0.02);
  CHECK(std::abs(noise.std().item<double>() - 1.0) < 0.02);
}

TEST_CASE("random_resized_crop: parts have the sizes that are asked for; thin images are cut in the middle", "[data]") {
  // A ramp tells where a part begins and ends: bilinear pixels of a ramp are its values at the pixels' middles.
  const at::Tensor across = at::arange(64, at::kFloat).view({1, 1, 1, 64}).expand({500, 1, 48, 64});
  const at::Tensor down = at::arange(48, at::kFloat).view({1, 1, 48, 1}).expand({500, 1, 48, 64});
  const Batch batch = random_resized_crop({100, 200}, {.scale = {0.2, 0.4}, .ratio = {0.8, 1.25}})(
      {.input = at::cat({across, down}, 1)}, info_of(first(500)));
  REQUIRE(batch.input.sizes() == at::IntArrayRef({500, 2, 100, 200}));
  // From the first and the last value of the ramp: width - 1.
  const at::Tensor widths =
      batch.input.select(1, 0).flatten(1).amax(1) - batch.input.select(1, 0).flatten(1).amin(1) + 1;
  const at::Tensor heights =
      batch.input.select(1, 1).flatten(1).amax(1) - batch.input.select(1, 1).flatten(1).amin(1) + 1;
  const at::Tensor share = widths * heights / (48.0 * 64.0);
  CHECK(share.min().item<double>() > 0.18);
  CHECK(share.max().item<double>() < 0.42);
  CHECK(std::abs(share.mean().item<double>() - 0.3) < 0.01);
  const at::Tensor ratio = widths / heights;
  CHECK(ratio.min().item<double>() > 0.75);
  CHECK(ratio.max().item<double>() < 1.34);
  const at::Tensor thin = at::arange(40, at::kFloat).view({1, 1, 1, 40}).expand({1, 1, 3, 40});
  const Batch middle = random_resized_crop({3, 4}, {.scale = {1.0, 1.0}})({.input = thin}, info_of({0}));
  CHECK(at::equal(middle.input[0][0][0], at::arange(18, 22, at::kFloat)));
}

TEST_CASE("transforms: images come back contiguous", "[data]") {
  const at::Tensor nhwc = at::arange(2 * 3 * 4 * 5, at::kFloat).view({2, 4, 5, 3}).permute({0, 3, 1, 2});
  const at::Tensor expanded = at::arange(20, at::kFloat).view({1, 1, 4, 5}).expand({2, 3, 4, 5});
  for (const auto& images : {nhwc, expanded}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kByte, at::kShort}) {
      const at::Tensor input = images.to(dtype);
      INFO(c10::toString(dtype) << ", strides " << input.strides());
      for (const Transform& transform : {to_float(), to_float(at::kDouble), normalize({0.5}, {2.0}), resize({4, 4}),
                                         Transform(random_horizontal_flip()), center_crop(2)}) {
        CHECK(transform({.input = input}, info_of(first(2))).input.is_contiguous());
      }
      if (input.is_floating_point()) {
        const Batch mixed = mixup({.num_classes = 2})({.input = input, .target = at::arange(2)}, info_of(first(2)));
        CHECK(mixed.input.is_contiguous());
      }
    }
  }
}

TEST_CASE("transforms: what does not fit is named", "[data]") {
  const auto apply = [](const Transform& transform, Batch batch, std::int64_t samples) {
    return error_of<DataError>([&] { transform(std::move(batch), info_of(first(samples))); });
  };
  CHECK(error_of<ConfigError>([] { random_horizontal_flip(1.5); }) ==
        "[data.random_horizontal_flip] expected a probability in [0, 1], got 1.5");
  CHECK(error_of<ConfigError>([] { random_crop(0); }) == "[data.random_crop] expected a size of at least 1x1, got 0x0");
  CHECK(error_of<ConfigError>([] { normalize({0.5}, {0.5, 0.5}); }) ==
        "[data.normalize] expected as many means as stds, at least one, got 1 and 2");
  CHECK(error_of<ConfigError>([] { normalize({0.5}, {0.0}); }) == "[data.normalize] expected stds above 0, got 0.0");
  CHECK(error_of<ConfigError>([] { to_float(at::kInt); }) == "[data.to_float] expected a floating point type, got Int");
  CHECK(error_of<ConfigError>([] { random_erasing({.scale = {0.5, 0.2}}); }) ==
        "[data.random_erasing] expected a scale with 0 <= low <= high <= 1, got 0.5 .. 0.2");
  CHECK(error_of<ConfigError>([] { random_erasing({.ratio = {0.0, 1.0}}); }) ==
        "[data.random_erasing] expected a ratio with 0 < low <= high, got 0.0 .. 1.0");
  CHECK(error_of<ConfigError>([] { random_resized_crop(4, {.scale = {0.5, 1.5}}); }) ==
        "[data.random_resized_crop] expected a scale with 0 < low <= high <= 1.0, got 0.5 .. 1.5");
  const auto refuses = [&](const Transform& transform, const char* name) {
    const std::string begin = danling::detail::concat("[data.", name, "] expected images of ");
    for (const auto& [dtype, called] : {std::pair(at::kComplexFloat, "ComplexFloat"), std::pair(at::kLong, "Long")}) {
      CHECK(apply(transform, {.input = at::zeros({1, 2, 3, 4}, dtype)}, 1) ==
            begin + "integers of at most 16 bits or floating point numbers, got " + called);
    }
    CHECK(apply(transform, {.input = at::zeros({1, 0, 3, 4})}, 1) == begin + "at least one channel, got none");
  };
  refuses(resize({2, 2}), "resize");
  refuses(resize(2), "resize");
  refuses(random_resized_crop(2), "random_resized_crop");
  CHECK(apply(center_crop(2), {}, 0) == "[data.center_crop] expected images [N, C, H, W] or [N, H, W], got no input");
  CHECK(apply(center_crop(2), {.input = at::zeros({4, 5})}, 4) ==
        "[data.center_crop] expected images [N, C, H, W] or [N, H, W], got shape [4, 5]");
  CHECK(apply(center_crop(2), {.input = at::zeros({4, 5, 0})}, 4) ==
        "[data.center_crop] expected images of at least 1x1, got 5x0");
  CHECK(apply(random_crop(4), {.input = at::zeros({2, 3, 4})}, 2) ==
        "[data.random_crop] expected images of at least 4x4 with their padding, got 3x4");
  CHECK(apply(random_crop(2), {.input = at::zeros({3, 3, 4})}, 2) ==
        "[data.random_crop] expected at most 2 samples, as in the BatchInfo, got 3");
  CHECK(apply(pad(3, {.padding_mode = PaddingMode::reflect}), {.input = at::zeros({1, 3, 9})}, 1) ==
        "[data.pad] expected margins of at most 2 for reflect padding of 3 pixels, got 3");
  CHECK(apply(pad({0, 0, 6, 0}, {.padding_mode = PaddingMode::symmetric}), {.input = at::zeros({1, 3, 5})}, 1) ==
        "[data.pad] expected margins of at most 5 for symmetric padding of 5 pixels, got 6");
  CHECK(apply(pad({-2, -1}), {.input = at::zeros({1, 3, 4})}, 1) ==
        "[data.pad] expected margins that leave at least 1x1, got 1x0");
  CHECK(apply(pad(1, {.fill = {256}}), {.input = at::zeros({1, 3, 4}, at::kByte)}, 1) ==
        "[data.pad] expected a value that images of type Byte can hold, got 256.0");
  CHECK(apply(pad(1, {.fill = {1, 2}}), {.input = at::zeros({1, 3, 4, 4})}, 1) ==
        "[data.pad] expected one value or one for each of 3 channels, got 2");
  CHECK(apply(normalize({0, 0}, {1, 1}), {.input = at::zeros({1, 3, 4, 4})}, 1) ==
        "[data.normalize] expected images of 2 channels, got 3");
  CHECK(apply(random_erasing({.noise = true}), {.input = at::zeros({1, 4, 4}, at::kByte)}, 1) ==
        "[data.random_erasing] expected floating point images for noise, got Byte");
}

}  // namespace transforms_test

}  // namespace
