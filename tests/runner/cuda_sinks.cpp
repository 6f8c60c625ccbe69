// Sinks of a run on a GPU: they receive the values of the device. Skipped without a GPU.
#include <algorithm>
#include <map>
#include <utility>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <danling/formats/image.hpp>
#include <danling/telemetry/histogram.hpp>

#include "cuda_runner.hpp"

namespace runner_test {
namespace {
namespace on_cuda_sinks {

using on_cuda::Given;
using on_cuda::Keeper;

dl::Histogram histogram_on_host(const at::Tensor& values) {
  const at::Tensor host = values.detach().to(at::kCPU).to(at::kFloat).contiguous();
  return dl::make_histogram(std::span(host.const_data_ptr<float>(), static_cast<std::size_t>(host.numel())));
}

void check_same_histogram(const dl::Histogram& a, const dl::Histogram& b) {
  CHECK(a.min == b.min);
  CHECK(a.max == b.max);
  CHECK(a.sum == b.sum);
  CHECK(a.sum_of_squares == b.sum_of_squares);
  CHECK(a.count == b.count);
  CHECK(a.nonfinite == b.nonfinite);
  CHECK(a.limits == b.limits);
  CHECK(a.counts == b.counts);
}

/// A stream that waits for no other.
c10::Stream side_stream() {
  return c10::impl::VirtualGuardImpl(c10::kCUDA).getStreamFromGlobalPool(c10::Device(c10::kCUDA, 0));
}

/// The histograms of the same values, computed on the host at once.
struct OnHost : dl::Callback {
  using Expected = std::map<std::pair<std::string, std::int64_t>, dl::Histogram>;
  explicit OnHost(std::shared_ptr<Expected> e) : expected(std::move(e)) {}
  std::string name() const override { return "on_host"; }
  void on_gradients(const dl::GradientsEvent& event) override {
    const torch::NoGradGuard no_grad;
    const std::int64_t step = event.runner.state().train.global_step;
    for (const auto& [key, parameter] : event.parameters()) {
      CHECK(parameter.is_cuda());
      at::Tensor gradient = parameter.grad().cpu().to(at::kFloat).div(event.divisor);
      if (event.loss_scale.defined()) {
        gradient = gradient.div(event.loss_scale.cpu());
      }
      expected->try_emplace({"weights/" + key, step}, histogram_on_host(parameter));
      expected->try_emplace({"gradients/" + key, step}, histogram_on_host(gradient));
    }
  }
  std::shared_ptr<Expected> expected;
};

void check_histograms(const std::string& precision) {
  const Folder folder;
  TinyConfig config = cuda_config(folder);
  config.precision = precision;
  config.accum_steps = 2;  // divisors and loss scales are powers of two: quotients are exact
  config.histogram_interval = 1;
  const auto given = std::make_shared<Given>();
  const auto expected = std::make_shared<OnHost::Expected>();
  TinyRunner runner(config);
  runner.add_sink(std::make_shared<Keeper>(given));
  runner.add(OnHost(expected));
  runner.train();
  runner.close();
  CHECK(expected->size() >= 2 * 4);
  CHECK(given->histograms.size() == expected->size());
  for (const auto& record : given->histograms) {
    CAPTURE(record.name, record.global_step);
    check_same_histogram(record.histogram, expected->at({record.name, record.global_step}));
  }
}

TEST_CASE("sinks on a GPU: histograms of weights and gradients are those of the same values on the host",
          "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    CAPTURE(precision);
    check_histograms(precision);
  }
}

TEST_CASE("sinks on a GPU: a program that trains on a stream of its own has the same histograms", "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  const c10::StreamGuard guard(side_stream());
  keep_busy(busy_square(), 50);
  check_histograms("fp32");
}

TEST_CASE("sinks on a GPU: a tensor of a side stream arrives as that stream wrote it", "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  const Folder folder;
  TinyConfig config = cuda_config(folder);
  config.histogram_interval = 0;
  const auto given = std::make_shared<Given>();
  TinyRunner runner(config);
  runner.add_sink(std::make_shared<Keeper>(given));
  const at::Tensor square = busy_square();
  runner.before_step = [&](TinyRunner& self, std::int64_t number) {
    const c10::StreamGuard guard(side_stream());
    at::Tensor values = torch::full({1 << 20}, -1.0, torch::kCUDA);
    at::Tensor image = torch::zeros({1, 8, 8}, torch::TensorOptions(torch::kCUDA).dtype(torch::kByte));
    keep_busy(square, 50);
    values.fill_(number);
    image.fill_(number);
    self.write_histogram("values", values);
    self.write_image("image", image);
    values.fill_(-2.0);
    image.fill_(255);
  };
  runner.train();
  runner.close();
  REQUIRE(given->histograms.size() == 7);
  REQUIRE(given->images.size() == 7);
  for (std::size_t i = 0; i < 7; ++i) {
    CAPTURE(i);
    const dl::Histogram& histogram = given->histograms[i].histogram;
    CHECK(histogram.count == 1 << 20);
    CHECK(histogram.min == static_cast<double>(i));
    CHECK(histogram.max == static_cast<double>(i));
    if (dl::formats::has_images()) {
      CHECK(dl::formats::decode_image(given->images[i].png).pixels ==
            std::vector<std::uint8_t>(64, static_cast<std::uint8_t>(i)));
    }
  }
}

/// The loss of each micro-batch and its samples.
struct Losses : dl::Callback {
  using List = std::vector<std::pair<double, std::int64_t>>;
  explicit Losses(std::shared_ptr<List> l) : losses(std::move(l)) {}
  std::string name() const override { return "losses"; }
  void on_step(const dl::StepEvent& event) override {
    losses->emplace_back(event.loss.cpu().item<double>(), event.samples);
  }
  std::shared_ptr<List> losses;
};

TEST_CASE("sinks on a GPU: numbers are those of the tensors of the device, and near those of a run on the host",
          "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  const auto train = [](const std::string& device, const std::shared_ptr<Losses::List>& losses) {
    const Folder folder;
    TinyConfig config = cuda_config(folder);
    config.device = device;
    config.log_interval = 1;
    const auto given = std::make_shared<Given>();
    TinyRunner runner(config);
    runner.add_sink(std::make_shared<Keeper>(given));
    runner.add(Losses(losses));
    runner.train();
    runner.close();
    return given->scalars;
  };
  const auto losses = std::make_shared<Losses::List>();
  const auto scalars = train("cuda", losses);
  const auto on_host = train("cpu", std::make_shared<Losses::List>());
  REQUIRE(losses->size() == 7);
  REQUIRE(scalars.size() == on_host.size());
  REQUIRE(scalars.size() == 6 + 2);  // the first batch has no line
  double sum = 0.0;
  for (const auto& [loss, samples] : *losses) {
    sum += loss * static_cast<double>(samples);
  }
  for (std::size_t i = 0; i < 6; ++i) {
    REQUIRE(scalars[i].iteration == static_cast<std::int64_t>(i) + 2);
    CHECK(*scalars[i].values.number("loss") == (*losses)[i + 1].first);
  }
  CHECK(*scalars[6].values.number("loss") == Approx(sum / 50.0).epsilon(1e-6));
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    CAPTURE(i);
    CHECK(scalars[i].split == on_host[i].split);
    CHECK(*scalars[i].values.number("loss") == Approx(*on_host[i].values.number("loss")).epsilon(1e-3));
  }
}

TEST_CASE("sinks on a GPU: bf16 and fp16 train with all of them, traces and heartbeats", "[runner][cuda]") {
  if (!has_cuda_device()) {
    return;
  }
  for (const std::string precision : {"bf16", "fp16"}) {
    CAPTURE(precision);
    const Folder folder;
    TinyConfig config = cuda_config(folder);
    config.precision = precision;
    config.epochs = 4;
    config.dropout = 0.1;
    config.log_interval = 2;
    config.histogram_interval = 2;
    config.csv = config.tensorboard = config.wandb.enabled = config.mlflow.enabled = true;
    config.wandb.mode = "offline";
    config.openmetrics.file = (folder.path() / "numbers.prom").string();
    config.profiling.enabled = config.profiling.record_shapes = config.profiling.profile_memory = true;
    config.heartbeat.enabled = true;
    config.heartbeat.interval_seconds = 0.05;
    const auto given = std::make_shared<Given>();
    std::vector<std::string> warnings;
    TinyRunner runner(config);
    collect_warnings(runner, warnings);
    runner.add_sink(std::make_shared<Keeper>(given));
    runner.train();
    const fs::path dir = runner.workspace().dir();
    runner.close();
    CHECK(dl::detail::join(warnings, "\n") == "");
    CHECK(runner.model.named_parameters()[0].second.scalar_type() == at::kFloat);
    double first = 0.0, last = 0.0;
    for (const auto& record : given->scalars) {
      CHECK(std::isfinite(*record.values.number("loss")));
      if (record.split == "train" && !record.iteration) {
        last = *record.values.number("loss");
        first = first == 0.0 ? last : first;
      }
    }
    CHECK(last < first);
    CHECK_FALSE(given->histograms.empty());
    CHECK(fs::exists(dir / "metrics.csv"));
    CHECK(fs::exists(dir / "heartbeats" / "rank-00000.json"));
    CHECK(fs::exists(dir / "profiles"));
    CHECK(fs::exists(folder.path() / "numbers.prom"));
    CHECK(fs::exists(folder.path() / "mlruns"));
    std::size_t event_files = 0, wandb_files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      event_files += entry.path().filename().string().find("tfevents") != std::string::npos ? 1 : 0;
      wandb_files += entry.path().extension() == ".wandb" ? 1 : 0;
    }
    CHECK(event_files == 1);
    CHECK(wandb_files == 1);
  }
}

}  // namespace on_cuda_sinks
}  // namespace
}  // namespace runner_test
