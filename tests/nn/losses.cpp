#include <danling/nn/losses.hpp>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <danling/nn/distillation.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <support/error.hpp>

namespace nn_test {

namespace nn = danling::nn;

namespace {

using danling::ConfigError;

using danling::DataError;
using Json = nlohmann::json;

const Json& golden_losses() {
  static const Json document = [] {
    std::ifstream file(std::string(DANLING_SOURCE_DIR) + "/tests/golden/nn_losses.json");
    REQUIRE(file.good());
    return Json::parse(file);
  }();
  return document;
}

at::Tensor tensor_of(const Json& numbers, const Json& shape) {
  return at::tensor(numbers.get<std::vector<double>>(), at::kDouble).view(shape.get<std::vector<std::int64_t>>());
}

nn::LossOptions options_of(const Json& given) {
  nn::LossOptions out;
  const auto number = [&](const char* name, auto& value) {
    if (given.contains(name)) value = given[name];
  };
  if (given.contains("ignore_index")) out.ignore_index = given["ignore_index"].get<std::int64_t>();
  if (given.contains("class_weights")) out.class_weights = given["class_weights"].get<std::vector<double>>();
  number("label_smoothing", out.label_smoothing);
  number("gamma", out.gamma);
  number("alpha", out.alpha);
  return out;
}

/// (sum, count) of a golden case's loss.
std::pair<at::Tensor, at::Tensor> compute(const Json& entry, const at::Tensor& logits) {
  at::Tensor target = tensor_of(entry["target"], entry["target_shape"]);
  target = entry["classes"].get<bool>() ? target.to(at::kLong) : target;
  if (entry["type"] == "distillation") {
    const bool ignores = target.eq(-100).any().item<bool>();
    const nn::DistillationLoss loss(entry["options"]["temperature"],
                                    ignores ? std::optional<std::int64_t>(-100) : std::nullopt);
    const at::Tensor teacher =
        tensor_of(entry["teacher"], entry["shape"]).to(logits.scalar_type()).requires_grad_(logits.requires_grad());
    const auto [sum, count] = loss.sum_and_count(logits, teacher, target);
    const auto gradient = torch::autograd::grad({sum}, {teacher}, {}, /*retain_graph=*/true, /*create_graph=*/false,
                                                /*allow_unused=*/true);
    CHECK_FALSE(gradient[0].defined());
    return {sum, count};
  }
  const auto loss = nn::losses().at(entry["type"].get<std::string>())(options_of(entry["options"]));
  const auto [sum, count] = loss->sum_and_count(logits, target);
  CHECK(at::equal((*loss)(logits, target), sum.div(count)));
  return {sum, count};
}

struct Bound {
  at::ScalarType type;
  double relative, absolute;
};

TEST_CASE("losses: values and gradients are those of PyTorch and of the papers' formulas", "[nn]") {
  for (const Json& entry : golden_losses()) {
    CAPTURE(entry["type"], entry["options"].dump(), entry["shape"].dump());
    for (const auto& [type, relative, absolute] : {Bound{at::kDouble, 1e-12, 1e-13}, Bound{at::kFloat, 2e-5, 2e-6}}) {
      CAPTURE(type);
      at::Tensor logits = tensor_of(entry["logits"], entry["shape"]).to(type).requires_grad_();
      const auto [sum, count] = compute(entry, logits);
      CHECK(sum.item<double>() == Approx(entry["sum"].get<double>()).epsilon(relative).margin(absolute));
      const at::Tensor mean = sum.div(count);
      CHECK(mean.item<double>() == Approx(entry["mean"].get<double>()).epsilon(relative).margin(absolute));
      mean.backward();
      const at::Tensor expected = tensor_of(entry["gradient"], entry["shape"]).to(type);
      CHECK(at::allclose(logits.grad(), expected, relative, absolute));
    }
  }
}

TEST_CASE("losses: bfloat16 and float16 logits are computed in float32", "[nn]") {
  for (const Json& entry : golden_losses()) {
    CAPTURE(entry["type"], entry["options"].dump());
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      const at::Tensor rounded = tensor_of(entry["logits"], entry["shape"]).to(type);
      at::Tensor narrow = rounded.clone().requires_grad_();
      at::Tensor wide = rounded.to(at::kFloat).requires_grad_();
      Json same = entry;
      if (entry.contains("teacher")) {
        const at::Tensor teacher = tensor_of(entry["teacher"], {entry["teacher"].size()}).to(type).to(at::kDouble);
        same["teacher"] = std::vector<double>(teacher.data_ptr<double>(), teacher.data_ptr<double>() + teacher.numel());
      }
      const auto [sum, count] = compute(same, narrow);
      const auto [wide_sum, wide_count] = compute(same, wide);
      CHECK(sum.scalar_type() == at::kFloat);
      CHECK(at::equal(sum, wide_sum));
      (sum.div(count)).backward();
      wide_sum.div(wide_count).backward();
      CHECK(at::equal(narrow.grad(), wide.grad().to(type)));
    }
  }
}

TEST_CASE("losses: logits of any size give finite values and gradients", "[nn]") {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    CAPTURE(type);
    const double large = 3e4;  // below the largest float16
    for (const double gamma : {0.5, 1.0, 2.0}) {
      CAPTURE(gamma);
      at::Tensor logits = at::tensor({large, -large, large, -large}, at::kDouble).to(type).requires_grad_();
      const at::Tensor target = at::tensor({1.0, 0.0, 0.0, 1.0}, at::kDouble).to(type);
      const at::Tensor loss = nn::SigmoidFocalLoss({.reduction = nn::Reduction::none, .gamma = gamma})(logits, target);
      const double exact = logits.detach()[0].item<double>();  // p[t] is 1, 1, 0, 0
      CHECK(at::allclose(loss, at::tensor({0.0, 0.0, exact, exact}, at::kFloat)));
      loss.sum().backward();
      CHECK(at::allclose(logits.grad(), at::tensor({0.0, 0.0, 1.0, -1.0}, at::kDouble).to(type)));

      at::Tensor classes = at::tensor({large, -large, large, -large}, at::kDouble).view({2, 2}).to(type);
      classes.requires_grad_();
      const at::Tensor of_classes =
          nn::FocalLoss({.reduction = nn::Reduction::none, .gamma = gamma})(classes, at::tensor({0, 1}, at::kLong));
      CHECK(at::allclose(of_classes, at::tensor({0.0, 2 * exact}, at::kFloat)));
      of_classes.sum().backward();
      CHECK(at::allclose(classes.grad(), at::tensor({0.0, 0.0, 1.0, -1.0}, at::kDouble).view({2, 2}).to(type)));
    }
  }
}

TEST_CASE("losses: the focal factor of a target that is nearly certain has float32's precision", "[nn]") {
  const double rest = 1.0 / (1.0 + std::exp(12.0));  // 1 - p[t]
  const double expected = rest * rest * -std::log1p(-rest);
  const at::Tensor loss = nn::SigmoidFocalLoss()(at::full({1}, 12.0), at::ones({1}));
  CHECK(loss.item<double>() == Approx(expected).epsilon(1e-5));
}

TEST_CASE("losses: no target, or none that counts, gives 0 and zero gradients", "[nn]") {
  for (const std::string type : {"cross_entropy", "focal", "binary_cross_entropy", "sigmoid_focal", "mse", "l1"}) {
    CAPTURE(type);
    const bool of_classes = type == "cross_entropy" || type == "focal";
    const bool ignores = type != "mse" && type != "l1";
    const auto loss = nn::losses().at(type)(ignores ? nn::LossOptions{.ignore_index = -1} : nn::LossOptions());
    for (const std::int64_t rows : ignores ? std::vector<std::int64_t>{0, 3} : std::vector<std::int64_t>{0}) {
      at::Tensor logits = at::full({rows, 4}, 2.0).requires_grad_();
      const at::Tensor target = of_classes ? at::full({rows}, -1, at::kLong) : at::full({rows, 4}, -1.0);
      const at::Tensor value = (*loss)(logits, target);
      CHECK(value.item<double>() == 0.0);
      value.backward();
      CHECK(at::equal(logits.grad(), at::zeros_like(logits)));
      CHECK(loss->normalizer(target) == 0);
    }
  }
  const nn::DistillationLoss distillation(2.0, -1);
  at::Tensor logits = at::full({3, 4}, 2.0).requires_grad_();
  const at::Tensor value = distillation(logits, at::zeros({3, 4}), at::full({3}, -1, at::kLong));
  CHECK(value.item<double>() == 0.0);
  value.backward();
  CHECK(at::equal(logits.grad(), at::zeros_like(logits)));
  CHECK(distillation(at::empty({0, 4}), at::empty({0, 4})).item<double>() == 0.0);
}

TEST_CASE("losses: the normalizer counts the targets of the mean", "[nn]") {
  const at::Tensor labels = at::tensor({0, -100, 2, -100, 1, 1}, at::kLong);
  CHECK(nn::CrossEntropyLoss()(at::zeros({6, 3}), labels).item<double>() == Approx(std::log(3.0)));
  CHECK(nn::CrossEntropyLoss().normalizer(labels) == 4);
  CHECK(nn::FocalLoss({.ignore_index = 1}).normalizer(labels) == 4);
  CHECK(nn::FocalLoss().normalizer(labels.view({2, 3}).t()) == 4);       // not contiguous
  CHECK(nn::CrossEntropyLoss().normalizer(at::zeros({5, 3, 2})) == 10);  // probabilities
  CHECK(nn::CrossEntropyLoss().normalizer(at::zeros({3})) == 1);
  CHECK(nn::SigmoidFocalLoss().normalizer(at::zeros({2, 3})) == 6);
  CHECK(nn::SigmoidFocalLoss({.ignore_index = -1}).normalizer(at::tensor({1.0, -1.0})) == 1);
  CHECK_FALSE(nn::CrossEntropyLoss({.reduction = nn::Reduction::sum}).normalizer(labels));
  CHECK_FALSE(nn::CrossEntropyLoss().normalizer(at::Tensor()));
}

TEST_CASE("losses: -100 ignores no class of unsigned targets", "[nn]") {
  const at::Tensor labels = at::tensor({156, 7, 156}, at::kLong), bytes = labels.to(at::kByte);  // 156 = 256 - 100
  const at::Tensor logits = at::zeros({3, 200});
  for (const char* type : {"cross_entropy", "focal"}) {
    const auto loss = nn::losses().at(type)({});
    CHECK((*loss)(logits, bytes).item<double>() == (*loss)(logits, labels).item<double>());
    CHECK(loss->normalizer(bytes) == 3);
  }
  const at::Tensor ones = at::tensor({1, 0}, at::kByte), scores = at::zeros({2});
  const nn::LossOptions ignoring{.ignore_index = -255};  // 1 in a byte
  CHECK(nn::BinaryCrossEntropyLoss(ignoring)(scores, ones).item<double>() == Approx(std::log(2.0)));
  CHECK(nn::SigmoidFocalLoss(ignoring)(scores, ones).item<double>() ==
        nn::SigmoidFocalLoss()(scores, ones).item<double>());
  const nn::DistillationLoss distillation(2.0, -100);
  const auto [sum, count] = distillation.sum_and_count(at::zeros({3, 200}), at::ones({3, 200}), bytes);
  CHECK(count.item<std::int64_t>() == 3);
}

TEST_CASE("losses: mse and l1 refuse a target of another shape, which would broadcast", "[nn]") {
  for (const std::string type : {"mse", "l1"}) {
    const auto loss = nn::losses().at(type)({});
    const auto error_with = [&](at::IntArrayRef prediction, at::IntArrayRef target) {
      return danling_test::error_of<DataError>([&] { (*loss)(at::zeros(prediction), at::zeros(target)); });
    };
    const std::string expected = "[loss.compute] expected a prediction and a target of the same shape, got ";
    CHECK(error_with({4, 1}, {4}) == expected + "[4, 1] and [4]; use target.unsqueeze(-1) or prediction.squeeze(-1)");
    CHECK(error_with({4}, {4, 1}) == expected + "[4] and [4, 1]; use target.squeeze(-1) or prediction.unsqueeze(-1)");
    CHECK(error_with({4, 2}, {2, 4}) == expected + "[4, 2] and [2, 4]; use target.view_as(prediction)");
    CHECK(error_with({4, 3}, {4, 1}) ==
          expected + "[4, 3] and [4, 1]; give the target the shape of the model's output");
    CHECK((*loss)(at::zeros({4, 1}), at::ones({4, 1})).item<double>() == 1.0);
    const danling::NestedTensor sequences({at::zeros({2}), at::zeros({3})});
    CHECK((*loss)(sequences, at::ones({2, 3})).item<double>() == 1.0);
  }
}

TEST_CASE("losses: logits and targets that do not fit are refused", "[nn]") {
  CHECK(danling_test::error_of<DataError>([] {
          nn::FocalLoss({.class_weights = std::vector<double>{1, 2}})(at::zeros({2, 3}), at::zeros({2}, at::kLong));
        }) == "[loss.class_weights] expected one weight per class, 3, got 2");
  CHECK(danling_test::error_of<DataError>([] { nn::DistillationLoss()(at::zeros({2, 3}), at::zeros({2, 4})); }) ==
        "[distill.compute] expected logits [N, classes, ...] of at least two classes, the same shape in model and "
        "teacher, got "
        "Float [2, 3] and Float [2, 4]");
  CHECK(danling_test::error_of<DataError>([] { nn::DistillationLoss()(at::zeros({2, 1}), at::zeros({2, 1})); }) ==
        "[distill.compute] expected logits [N, classes, ...] of at least two classes, the same shape in model and "
        "teacher, got "
        "Float [2, 1] and Float [2, 1]");
  CHECK(danling_test::error_of<ConfigError>([] { nn::DistillationLoss(0.0); }) ==
        "[distill.create] expected a temperature above 0, got 0.0");
}

}  // namespace
}  // namespace nn_test
