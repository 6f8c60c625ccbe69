#include <danling/metrics/average_meters.hpp>

#include <map>

#include <ATen/ops/full.h>

#include <support/error.hpp>

namespace {

using danling::AverageMeters;
using danling::MetricError;
using danling::StateError;
using danling_test::error_of;

static_assert(danling::Checkpointable<AverageMeters>);

TEST_CASE("AverageMeters: the example of DanLing's docstring", "[metrics]") {
  AverageMeters meters;
  meters.update({{"loss", 0.6}, {"auroc", 0.7}, {"r2", 0.8}});
  CHECK(meters.text() == "loss: 0.6000 (0.6000)\tauroc: 0.7000 (0.7000)\tr2: 0.8000 (0.8000)");
  meters["loss"].update(0.9, 1);
  CHECK(meters.text() == "loss: 0.9000 (0.7500)\tauroc: 0.7000 (0.7000)\tr2: 0.8000 (0.8000)");
  CHECK(meters.sum().text(1) == "loss: 1.5\tauroc: 0.7\tr2: 0.8");
  CHECK(meters.count().text(0) == "loss: 2\tauroc: 1\tr2: 1");
  CHECK(meters.n().text(0) == "loss: 1\tauroc: 1\tr2: 1");
  CHECK(meters.value().text(1) == "loss: 0.9\tauroc: 0.7\tr2: 0.8");
  CHECK(meters.batch().text(1) == "loss: 0.9\tauroc: 0.7\tr2: 0.8");
  CHECK(meters.average().text(2) == "loss: 0.75\tauroc: 0.70\tr2: 0.80");
  meters.reset();
  CHECK(meters.text() == "loss: nan (nan)\tauroc: nan (nan)\tr2: nan (nan)");
}

TEST_CASE("AverageMeters: updates take tensors, weights and maps", "[metrics]") {
  AverageMeters meters;
  meters.update({{"loss", at::full({}, 0.5F), 3}, {"norms", at::full({2}, 1.0)}, {"loss", 1.5, 1}});
  CHECK(meters["loss"].avg() == 0.75);
  meters.update(std::map<std::string, double>{{"lr", 0.1}, {"loss", 0.75}});
  CHECK(meters.text(2) == "loss: 0.75 (0.75)\tnorms: [1.00, 1.00] ([1.00, 1.00])\tlr: 0.10 (0.10)");
}

TEST_CASE("AverageMeters: an undefined tensor is refused, not counted as 0", "[metrics]") {
  AverageMeters meters;
  CHECK(error_of<MetricError>([&] { meters.update({{"loss", at::Tensor()}}); }) ==
        "[average_meter.update] expected a real tensor, got an undefined tensor");
}

TEST_CASE("AverageMeters: a reference stays valid while others are added, reset and loaded", "[metrics]") {
  AverageMeters meters;
  danling::AverageMeter& loss = meters["loss"];
  for (int i = 0; i < 100; ++i) {
    meters[danling::detail::concat("m", i)].update(i);
  }
  meters.reset();
  loss.update(2.0);
  CHECK(&meters["loss"] == &loss);
  const auto state = danling::clone(meters.state_dict());
  loss.update(4.0);
  meters.load_state_dict(state);
  CHECK(&meters["loss"] == &loss);
  CHECK(loss.avg() == 2.0);
  CHECK(meters.size() == 101);
}

TEST_CASE("AverageMeters: an unknown name lists the known ones", "[metrics]") {
  AverageMeters meters;
  meters.update({{"loss", 0.6}, {"lr", 0.7}});
  CHECK(error_of<MetricError>([&] { meters.at("los"); }) ==
        "[meters.at] expected one of [loss, lr], got 'los'; did you mean 'loss'?");
  CHECK_FALSE(meters.contains("los"));
  CHECK(meters.at("lr").avg() == 0.7);
}

TEST_CASE("AverageMeters: the state goes back into empty meters, and empties what it does not hold", "[metrics]") {
  AverageMeters meters;
  meters.update({{"loss", 0.6}, {"lr", 0.1}});
  meters.update({{"loss", 0.1}});
  const auto state = meters.state_dict();
  AverageMeters other;
  other.load_state_dict(state);
  CHECK(danling::first_difference(other.state_dict(), state).empty());
  AverageMeters busy;
  busy.update({{"old", 1.0}});
  busy.load_state_dict(state);
  CHECK(busy.text() == "old: nan (nan)\t" + meters.text());
}

TEST_CASE("AverageMeters: a damaged state changes nothing", "[metrics]") {
  AverageMeters meters;
  meters.update({{"loss", 0.6}, {"lr", 0.1}});
  auto state = danling::clone(meters.state_dict());
  state["loss"]["sum"] = 9.0;
  state["lr"] = 1;
  const std::string before = meters.text();
  CHECK(error_of<StateError>([&] { meters.load_state_dict(state); }) == "[state.read] expected a map, got an integer");
  CHECK(meters.text() == before);
}

}  // namespace
