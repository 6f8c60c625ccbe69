#include <danling/data/transforms/mix.hpp>

#include <cmath>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/checkpoint/file.hpp>

#include <support/error.hpp>

namespace {

namespace transforms_mix_test {

using namespace danling::data::transforms;
using danling::Batch;
using danling::ConfigError;
using danling::DataError;
using danling::data::BatchInfo;
using danling::data::RandomKey;
using danling_test::error_of;

BatchInfo info_of(std::uint64_t batch, std::vector<std::int64_t> records = {70, 71, 72, 73}) {
  BatchInfo info;
  info.indices = std::move(records);
  info.batch_key = RandomKey::of(batch);
  return info;
}

Batch batch() {
  return {.input = at::arange(4 * 3 * 8 * 10, at::kFloat).view({4, 3, 8, 10}),
          .target = at::tensor({1, 4, 0, 2}, at::kLong)};
}

/// The share of a sample's own label.
double weight_of(const Batch& mixed) { return mixed.target[1][4].item<double>(); }

TEST_CASE("one_hot: a one at the label", "[data]") {
  const Batch out = one_hot(5)(batch(), info_of(0));
  CHECK(out.target.scalar_type() == at::kFloat);
  CHECK(at::equal(out.target, at::eye(5).index_select(0, at::tensor({1, 4, 0, 2}, at::kLong))));
  CHECK(at::equal(one_hot(5, at::kLong)({.input = at::zeros({2}), .target = at::tensor({3, 0}, at::kByte)}, {}).target,
                  at::eye(5, at::kLong).index_select(0, at::tensor({3, 0}, at::kLong))));
}

TEST_CASE("mixup: adds the sample before, weighted, to inputs and labels", "[data]") {
  const Batch from = batch();
  const Batch out = mixup({.num_classes = 5})(batch(), info_of(3));
  const double weight = weight_of(out);
  CHECK(weight > 0.0);
  CHECK(weight < 1.0);
  const at::Tensor expected = from.input * weight + from.input.roll(1, 0) * (1 - weight);
  CHECK((out.input - expected).abs().max().item<double>() < 1e-3);
  const at::Tensor labels = at::eye(5).index_select(0, from.target);
  CHECK((out.target - (labels * weight + labels.roll(1, 0) * (1 - weight))).abs().max().item<double>() < 1e-6);
  CHECK(at::equal(from.input, batch().input));
  // Labels that are probabilities already.
  Batch soft = batch();
  soft.target = labels;
  CHECK(at::equal(mixup()(soft, info_of(3)).target, out.target));
}

// tests/golden/transforms.py; the weight that torchvision drew is told by its targets.
TEST_CASE("mixup: torchvision's for the weight that it drew", "[data]") {
  const danling::State file = danling::load_file(DANLING_SOURCE_DIR "/tests/golden/data/transforms.pth");
  const at::Tensor target = file.at("mixup_target").tensor();
  const double weight = target[0][2].item<double>();
  const at::Tensor floats = file.at("floats").tensor();
  CHECK((floats * weight + floats.roll(1, 0) * (1 - weight) - file.at("mixup_input").tensor())
            .abs()
            .max()
            .item<double>() < 1e-6);
}

TEST_CASE("cutmix: puts one rectangle of the image before into each, and its share into the labels", "[data]") {
  const Batch from = batch();
  int cut = 0;
  for (std::uint64_t key = 0; key < 50; ++key) {
    const Batch out = cutmix({.num_classes = 5})(batch(), info_of(key));
    const at::Tensor taken = out.input != from.input;
    CHECK(at::equal(out.input, from.input.roll(1, 0).where(taken, from.input)));
    CHECK(at::equal(taken, taken[0][0].expand_as(taken)));  // the same place in all images and channels
    const auto area = taken[0][0].sum().item<std::int64_t>();
    CHECK(area == taken[0][0].any(0).sum().item<std::int64_t>() * taken[0][0].any(1).sum().item<std::int64_t>());
    CHECK(std::abs(weight_of(out) - (1.0 - static_cast<double>(area) / 80.0)) < 1e-6);
    CHECK((out.target.sum(1) - 1).abs().max().item<double>() < 1e-6);
    cut += area > 0 ? 1 : 0;
  }
  CHECK(cut > 35);
}

TEST_CASE("mixup and cutmix: depend on the batch, not on its records, and repeat bit for bit", "[data]") {
  for (const auto& transform : {mixup({.num_classes = 5}), cutmix({.num_classes = 5})}) {
    const Batch once = transform(batch(), info_of(8));
    const Batch again = transform(batch(), info_of(8, {5, 5, 9, 1}));
    CHECK(at::equal(once.input, again.input));
    CHECK(at::equal(once.target, again.target));
    CHECK_FALSE(at::equal(once.target, transform(batch(), info_of(11)).target));
  }
  const auto chain = compose(mixup({.num_classes = 5}), mixup());
  const Batch twice = chain(batch(), info_of(8));
  CHECK(at::equal(twice.input, chain(batch(), info_of(8)).input));
}

TEST_CASE("mixup: weights follow Beta(alpha, alpha)", "[data]") {
  const int draws = 4000;
  for (const double alpha : {0.2, 1.0, 4.0}) {
    double sum = 0.0;
    double squares = 0.0;
    const Transform transform = mixup({.alpha = alpha, .num_classes = 5});
    for (std::uint64_t key = 0; key < draws; ++key) {
      const double weight = weight_of(
          transform({.input = at::zeros({2, 1}), .target = at::tensor({0, 4}, at::kLong)}, info_of(key, {0, 1})));
      sum += weight;
      squares += weight * weight;
    }
    const double mean = sum / draws;
    CHECK(std::abs(mean - 0.5) < 0.03);
    // Var of Beta(a, a): 1 / (4 (2 a + 1)).
    CHECK(std::abs(squares / draws - mean * mean - 1.0 / (4.0 * (2.0 * alpha + 1.0))) < 0.01);
  }
}

TEST_CASE("mixup, cutmix and one_hot: what does not fit is named", "[data]") {
  const auto apply = [](const Transform& transform, Batch from) {
    return error_of<DataError>([&] { transform(std::move(from), info_of(0)); });
  };
  CHECK(error_of<ConfigError>([] { one_hot(0); }) == "[data.one_hot] expected at least one class, got 0");
  CHECK(error_of<ConfigError>([] { mixup({.alpha = 0.0}); }) == "[data.mixup] expected an alpha above 0, got 0.0");
  CHECK(error_of<ConfigError>([] { cutmix({.num_classes = -1}); }) ==
        "[data.cutmix] expected num_classes of at least 0, got -1");
  CHECK(apply(one_hot(3), batch()) == "[data.one_hot] expected labels in [0, 3), got 4 for sample 1 (record 71)");
  CHECK(apply(one_hot(3), {.input = at::zeros({2})}) ==
        "[data.one_hot] expected targets [N] of class numbers, got none");
  CHECK(apply(one_hot(3), {.input = at::zeros({2}), .target = at::zeros({2})}) ==
        "[data.one_hot] expected targets [N] of class numbers, got shape [2] of type Float");
  CHECK(apply(mixup(), batch()) ==
        "[data.mixup] expected targets [N, classes] of probabilities since num_classes is not given, got shape [4] of "
        "type Long");
  Batch bytes = batch();
  bytes.input = bytes.input.to(at::kByte);
  CHECK(apply(mixup({.num_classes = 5}), bytes) ==
        "[data.mixup] expected floating point inputs, got Byte; put to_float() or normalize() before it");
  Batch few = batch();
  few.target = few.target.narrow(0, 0, 3);
  CHECK(apply(cutmix({.num_classes = 5}), few) == "[data.cutmix] expected as many targets as inputs (4), got 3");
}

}  // namespace transforms_mix_test

}  // namespace
