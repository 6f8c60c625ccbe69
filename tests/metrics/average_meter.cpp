#include <danling/metrics/average_meter.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/Context.h>
#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <support/cuda.hpp>
#include <support/error.hpp>

namespace {

using danling::AverageMeter;
using danling::MetricError;
using danling::State;
using danling::StateError;
using danling_test::error_of;

at::Tensor row(std::vector<double> values) { return at::tensor(values, at::kDouble); }

std::vector<double> elements(const danling::Result::Value& value) {
  const auto* array = std::get_if<danling::Result::Array>(&value);
  return array != nullptr ? array->values : std::get<std::vector<double>>(value);
}

static_assert(danling::Checkpointable<AverageMeter>);

TEST_CASE("AverageMeter: the example of DanLing's docstring", "[metrics]") {
  AverageMeter meter;
  meter.update(0.7);
  CHECK(meter.val() == 0.7);
  CHECK(meter.bat() == 0.7);
  CHECK(meter.avg() == 0.7);
  meter.update(0.9);
  CHECK(meter.val() == 0.9);
  CHECK(meter.avg() == Approx(0.8));
  CHECK(meter.sum() == Approx(1.6));
  CHECK(meter.count() == 2);
  meter.update(0.5, 3);
  CHECK(meter.avg() == Approx(0.62));
  CHECK(meter.n() == 3);
  CHECK(meter.text() == "0.5000 (0.6200)");
  CHECK(meter.text(2) == "0.50 (0.62)");
  meter.reset();
  CHECK(meter.text() == "nan (nan)");
  CHECK(meter.sum() == 0.0);
  CHECK(meter.count() == 0);
  CHECK(meter.n() == 0);
}

TEST_CASE("AverageMeter: a weight of 0 sets the last value and leaves the average alone", "[metrics]") {
  AverageMeter meter;
  meter.update(5.0, 0);
  CHECK(std::isnan(meter.val()));
  CHECK(std::isnan(meter.avg()));
  meter.update(1.0, 2);
  meter.update(std::nan(""), 0);
  CHECK(std::isnan(meter.val()));
  CHECK(meter.avg() == 1.0);
  CHECK(meter.n() == 0);
  CHECK(meter.count() == 2);
}

TEST_CASE("AverageMeter: a negative weight is refused and changes nothing", "[metrics]") {
  AverageMeter meter;
  meter.update(1.0);
  const std::string message = "[average_meter.update] expected a weight of at least 0, got -2";
  CHECK(error_of<MetricError>([&] { meter.update(3.0, -2); }) == message);
  CHECK(error_of<MetricError>([&] { meter.update(at::full({}, 3.0), -2); }) == message);
  CHECK(error_of<MetricError>([&] { meter.update(row({1, 2}), -2); }) == message);
  CHECK(error_of<MetricError>([&] { meter.add(3.0, -2); }) == message);
  CHECK(meter.val() == 1.0);
  CHECK(meter.count() == 1);
}

TEST_CASE("AverageMeter: sums over items are exact, and over no items leave the average alone", "[metrics]") {
  AverageMeter meter;
  meter.add(1.0, 3);
  meter.add(at::full({}, 2, at::kLong), 3);
  meter.add(at::full({}, 4.0F), at::full({}, 3, at::kInt));
  CHECK(meter.sum() == 7.0);
  CHECK(meter.avg() == 7.0 / 9.0);
  CHECK(meter.val() == 4.0 / 3.0);
  meter.add(0.0, 0);
  CHECK(std::isnan(meter.val()));
  CHECK(meter.n() == 0);
  CHECK(meter.avg() == 7.0 / 9.0);
  CHECK(error_of<MetricError>([&] { meter.add(row({1, 2}), 1); }) ==
        "[average_meter.add] expected a scalar, got Double [2]");
  CHECK(error_of<MetricError>([&] { meter.add(at::full({}, 1.0F), at::full({}, 1.0F)); }) ==
        "[average_meter.add] expected an integer scalar as weight, got Float []");
}

TEST_CASE("AverageMeter: scalar tensors of every real type are read as numbers", "[metrics]") {
  AverageMeter meter;
  for (const auto type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kByte}) {
    INFO(c10::toString(type));
    meter.update(at::full({}, 3, type));
    CHECK(meter.val() == 3.0);
    meter.update(at::full({1, 1}, 5, type), 2);
    CHECK(meter.val() == 5.0);
  }
  meter.update(at::full({}, true, at::kBool));
  CHECK(meter.val() == 1.0);
  CHECK(meter.count() == 25);
  // A view whose numbers are stored with the other sign.
  const auto complex = at::full({}, c10::complex<double>(1.0, 2.0), at::kComplexDouble);
  meter.update(at::imag(complex.conj()));
  CHECK(meter.val() == -2.0);
  CHECK(error_of<MetricError>([&] { meter.update(complex); }) ==
        "[average_meter.update] expected a real tensor, got ComplexDouble []");
  CHECK(error_of<MetricError>([&] { meter.update(at::Tensor()); }) ==
        "[average_meter.update] expected a real tensor, got an undefined tensor");
}

TEST_CASE("AverageMeter: sums keep what single precision would lose", "[metrics]") {
  AverageMeter scalars;
  AverageMeter tensors;
  scalars.update(at::full({}, 16777216.0F));
  tensors.update(at::full({2}, 16777216.0F));
  for (int i = 0; i < 3; ++i) {
    scalars.update(at::full({}, 1.0F));
    tensors.update(at::full({2}, 1.0F));
  }
  CHECK(scalars.sum() == 16777219.0);
  CHECK(elements(tensors.total()) == std::vector<double>{16777219.0, 16777219.0});
}

TEST_CASE("AverageMeter: tensors of one shape are averaged element by element", "[metrics]") {
  AverageMeter meter;
  const at::Tensor buffer = row({1, 2, 3}).view({3, 1});
  meter.update(buffer);
  buffer.fill_(7);  // a metric may reuse its buffer
  CHECK(elements(meter.value()) == std::vector<double>{1, 2, 3});
  meter.update(row({3, 2, 1}).view({3, 1}).to(at::kFloat), 3);
  CHECK(elements(meter.average()) == std::vector<double>{2.5, 2, 1.5});
  CHECK(elements(meter.batch()) == std::vector<double>{3, 2, 1});
  CHECK(elements(meter.total()) == std::vector<double>{10, 8, 6});
  CHECK(meter.average_tensor().sizes() == at::IntArrayRef({3, 1}));
  CHECK(meter.average_tensor().scalar_type() == at::kDouble);
  CHECK(meter.count() == 4);
  CHECK(meter.text(1) == "[[3.0], [2.0], [1.0]] ([[2.5], [2.0], [1.5]])");
  CHECK(error_of<MetricError>([&] { meter.avg(); }) ==
        "[average_meter.avg] expected a scalar, got a tensor of shape [3, 1]; read value(), average() or total()");

  meter.update(9.0, 0);
  CHECK(elements(meter.value()) == std::vector<double>{9, 9, 9});
  CHECK(elements(meter.average()) == std::vector<double>{2.5, 2, 1.5});
}

TEST_CASE("AverageMeter: scalars and shapes do not mix until reset", "[metrics]") {
  AverageMeter meter;
  meter.update(row({1, 2, 3}));
  CHECK(error_of<MetricError>([&] { meter.update(row({1, 2})); }) ==
        "[average_meter.update] expected a tensor of shape [3] as before, got a tensor of shape [2]; average over "
        "the samples of a batch first, or call reset() between the two");
  CHECK(error_of<MetricError>([&] { meter.update(1.0); }) ==
        "[average_meter.update] expected a tensor of shape [3] as before, got a number; average over the samples of a "
        "batch first, or call reset() between the two");
  CHECK(error_of<MetricError>([&] { meter.update(row({1})); }) ==
        "[average_meter.update] expected a tensor of shape [3] as before, got a tensor of shape [1]; average over "
        "the samples of a batch first, or call reset() between the two");
  CHECK(error_of<MetricError>([&] { meter.update(row({1}).sum()); }) ==
        "[average_meter.update] expected a tensor of shape [3] as before, got a scalar; average over the samples of a "
        "batch first, or call reset() between the two");
  CHECK(elements(meter.average()) == std::vector<double>{1, 2, 3});
  CHECK(meter.count() == 1);
  meter.reset();
  meter.update(1.0);
  CHECK(error_of<MetricError>([&] { meter.update(row({1, 2})); }) ==
        "[average_meter.update] expected a scalar as before, got a tensor of shape [2]; average over the samples of a "
        "batch first, or call reset() between the two");
  CHECK(meter.avg() == 1.0);
  CHECK(meter.count() == 1);
}

TEST_CASE("AverageMeter: a shape seen only with a weight of 0 gives nan of that shape", "[metrics]") {
  AverageMeter meter;
  meter.update(row({1, 2}), 0);
  const auto value = elements(meter.value());
  const auto average = elements(meter.average());
  REQUIRE(value.size() == 2);
  REQUIRE(average.size() == 2);
  CHECK(std::isnan(value[1]));
  CHECK(std::isnan(average[1]));
}

TEST_CASE("AverageMeter: copies are independent", "[metrics]") {
  AverageMeter meter;
  meter.update(row({1, 2}));
  AverageMeter copy = meter;
  copy.update(row({3, 4}));
  CHECK(elements(meter.average()) == std::vector<double>{1, 2});
  CHECK(elements(copy.average()) == std::vector<double>{2, 3});
  meter = copy;
  meter.update(row({2, 3}));
  CHECK(elements(copy.total()) == std::vector<double>{4, 6});
}

TEST_CASE("AverageMeter: no autograd graph is kept alive", "[metrics]") {
  for (const auto& device : {at::Device(at::kCPU), at::Device(at::kMeta)}) {
    for (const auto& shape : {std::vector<std::int64_t>{}, std::vector<std::int64_t>{4}}) {
      AverageMeter meter;
      const at::Tensor factor = at::ones(shape, at::TensorOptions().device(device));
      at::Tensor value = at::ones(shape, at::TensorOptions().device(device)).requires_grad_().mul(factor);
      REQUIRE(factor.use_count() > 1);  // the graph holds the factor for backward
      meter.update(value);
      meter.update(value);
      value.reset();
      CHECK(factor.use_count() == 1);
      CHECK_FALSE(meter.sum_tensor().requires_grad());
      CHECK_FALSE(meter.value_tensor().requires_grad());
    }
  }
}

// Meta tensors have no data: any attempt to read one throws.
TEST_CASE("AverageMeter: updates on a device read nothing back", "[metrics]") {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor loss = at::empty({}, meta);
  AverageMeter meter;
  meter.update(2.0);
  meter.update(loss, 3);
  meter.update(4.0);
  meter.add(loss, 5);
  meter.add(loss, at::empty({}, meta.dtype(at::kLong)));
  meter.add(at::full({}, 1.0F), at::empty({}, meta.dtype(at::kLong)));
  CHECK(meter.average_tensor().is_meta());
  CHECK(meter.average_tensor().scalar_type() == at::kDouble);
  CHECK(meter.value_tensor().is_meta());
  CHECK_THROWS(meter.avg());
  CHECK_THROWS(meter.count());
}

TEST_CASE("AverageMeter: values on a device average as on the host", "[metrics][cuda]") {
  if (!danling_test::has_cuda_device()) {
    return;
  }
  const auto on = [](double value, at::ScalarType type = at::kFloat) {
    return at::full({}, value, at::TensorOptions().device(at::kCUDA).dtype(type));
  };
  AverageMeter meter;
  meter.update(2.0);
  meter.update(on(0.5), 3);
  CHECK(meter.val() == 0.5);
  CHECK(meter.avg() == 0.875);
  meter.update(1.0);
  CHECK(meter.val() == 1.0);
  CHECK(meter.n() == 1);
  meter.add(on(6), 4);
  CHECK(meter.val() == 1.5);
  meter.add(on(3, at::kLong), on(2, at::kLong));
  CHECK(meter.val() == 1.5);
  CHECK(meter.n() == 2);
  CHECK(meter.count() == 11);
  CHECK(meter.sum() == 13.5);
  CHECK(meter.average_tensor().is_cuda());
  meter.add(on(0, at::kLong), on(0, at::kLong));
  CHECK(std::isnan(meter.val()));
  CHECK(meter.avg() == 13.5 / 11);

  AverageMeter restored;
  restored.load_state_dict(meter.state_dict());
  for (AverageMeter* each : {&meter, &restored}) {
    each->update(on(0.1), 7);
  }
  CHECK(danling::first_difference(meter.state_dict(), restored.state_dict()).empty());
}

TEST_CASE("AverageMeter: a meter started in inference mode goes on outside of it", "[metrics]") {
  AverageMeter meter;
  {
    const c10::InferenceMode inference;
    meter.update(at::full({2}, 1.0));
    AverageMeter restored;
    restored.load_state_dict(meter.state_dict());
    meter = std::move(restored);
  }
  meter.update(at::full({2}, 3.0));
  CHECK(elements(meter.average()) == std::vector<double>{2, 2});
}

TEST_CASE("AverageMeter: save, load and continue equals an uninterrupted run bit for bit", "[metrics]") {
  for (const bool tensors : {false, true}) {
    AverageMeter whole;
    AverageMeter first;
    const auto update = [&](AverageMeter& meter, int step) {
      const double value = 1.0 / (step + 3);
      tensors ? meter.update(row({value, -value}), step % 4) : meter.update(value, step % 4);
    };
    for (int step = 0; step < 20; ++step) {
      update(whole, step);
    }
    for (int step = 0; step < 9; ++step) {
      update(first, step);
    }
    const State saved = danling::clone(first.state_dict());
    AverageMeter second;
    second.load_state_dict(saved);
    CHECK(danling::first_difference(second.state_dict(), saved).empty());
    for (int step = 9; step < 20; ++step) {
      update(second, step);
    }
    CHECK(danling::first_difference(second.state_dict(), whole.state_dict()).empty());
    // The meter must not add to the tensors of the loaded state.
    CHECK(danling::first_difference(first.state_dict(), saved).empty());
  }
}

TEST_CASE("AverageMeter: a state that does not fit is refused and changes nothing", "[metrics]") {
  AverageMeter meter;
  meter.update(0.25, 2);
  State state = meter.state_dict();
  state["count"] = -1;
  CHECK(error_of<StateError>([&] { meter.load_state_dict(state); }) ==
        "[average_meter.load_state_dict] expected n and count of at least 0, got 2 and -1");
  state = meter.state_dict();
  state["value"] = row({1, 2});
  state["sum"] = row({1, 2, 3});
  CHECK(error_of<StateError>([&] { meter.load_state_dict(state); }) ==
        "[average_meter.load_state_dict] expected value and sum of one shape, got Double [2] and Double [3]");
  state["value"] = 1.0;
  CHECK(error_of<StateError>([&] { meter.load_state_dict(state); }) == "[state.read] expected a tensor, got a number");
  state.map().erase("n");
  CHECK(error_of<StateError>([&] { meter.load_state_dict(state); }) ==
        "[state.at] expected key 'n', got keys ['value', 'sum', 'compensation', 'count']");
  CHECK(meter.text() == "0.2500 (0.2500)");
  CHECK(meter.count() == 2);
}

TEST_CASE("AverageMeter: sparse and nested tensors are refused", "[metrics]") {
  AverageMeter meter;
  CHECK(error_of<MetricError>([&] { meter.update(row({1, 0, 2}).to_sparse()); }) ==
        "[average_meter.update] expected a dense tensor, got a sparse one, Double [3]");
  CHECK(error_of<MetricError>([&] { meter.add(row({1}).to_sparse(), 1); }) ==
        "[average_meter.add] expected a dense tensor, got a sparse one, Double [1]");
  CHECK(error_of<MetricError>([&] { meter.update(at::_nested_tensor_from_tensor_list({row({1}), row({1, 2})})); }) ==
        "[average_meter.update] expected a dense tensor, got a nested one");
  CHECK(meter.count() == 0);
}

TEST_CASE("AverageMeter: weights whose sum would overflow are refused", "[metrics]") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  AverageMeter meter;
  meter.update(1.0, most - 1);
  const std::string refused =
      "[average_meter.update] expected weights of at most 9223372036854775807 together, got 2 "
      "after 9223372036854775806";
  CHECK(error_of<MetricError>([&] { meter.update(1.0, 2); }) == refused);
  CHECK(error_of<MetricError>([&] { meter.add(1.0, 2); }) == refused);
  CHECK(error_of<MetricError>([&] { meter.update(row({1}), 2); }) == refused);
  meter.update(1.0, 1);
  CHECK(meter.count() == most);
  meter.update(5.0, 0);
  CHECK(meter.avg() == 1.0);
  AverageMeter tensors;
  tensors.update(row({1, 2}), most);
  CHECK(error_of<MetricError>([&] { tensors.update(row({1, 2}), 1); }) ==
        "[average_meter.update] expected weights of at most 9223372036854775807 together, got 1 after "
        "9223372036854775807");
}

}  // namespace
