// Checkpointable: every stateful part of the library continues from its state as the original.
#include <danling/data/length_buckets.hpp>
#include <danling/metrics/batch_losses.hpp>
#include <danling/metrics/batch_metric.hpp>
#include <danling/optim/adam.hpp>
#include <danling/optim/lr_scheduler.hpp>
#include <danling/optim/sgd.hpp>
#include <danling/optim/torch_adapter.hpp>

#include "fixture.hpp"

namespace runner_test {

using dl::Checkpointable;
using dl::CheckpointableIterator;

static_assert(Checkpointable<dl::data::Sampler> && Checkpointable<dl::data::SequentialSampler> &&
              Checkpointable<dl::data::RandomSampler> && Checkpointable<dl::data::WeightedSampler> &&
              Checkpointable<dl::data::SubsetSampler> && Checkpointable<dl::data::DistributedSampler> &&
              Checkpointable<dl::data::BatchSampler>);
static_assert(CheckpointableIterator<dl::data::LoaderBase> && CheckpointableIterator<dl::data::Loader<dl::Batch>> &&
              CheckpointableIterator<dl::data::Stream<dl::Batch>>);
static_assert(Checkpointable<dl::AverageMeter> && Checkpointable<dl::AverageMeters> &&
              Checkpointable<dl::MetricMeter> && Checkpointable<dl::MetricsBase> && Checkpointable<dl::Metrics> &&
              Checkpointable<dl::StreamMetrics> && Checkpointable<dl::GlobalMetrics> &&
              Checkpointable<dl::MultiTaskMetrics> && Checkpointable<dl::DatasetMetric<dl::Batch>> &&
              Checkpointable<dl::BatchMetrics<dl::Batch>> && Checkpointable<dl::LossesBase> &&
              Checkpointable<dl::Losses> && Checkpointable<dl::BatchLosses<dl::Batch>>);
static_assert(Checkpointable<dl::optim::Optimizer> && Checkpointable<dl::optim::SGD> &&
              Checkpointable<dl::optim::Adam> && Checkpointable<dl::optim::AdamW> &&
              Checkpointable<dl::optim::Scheduler> && Checkpointable<dl::optim::LRScheduler> &&
              Checkpointable<dl::optim::StepLR>);
static_assert(Checkpointable<dl::ModelHandle>);  // of a model and of its average (`ema`)
static_assert(Checkpointable<dl::RunnerTrainState> && Checkpointable<dl::RunnerElasticState> &&
              Checkpointable<dl::RunnerRNGState> && Checkpointable<dl::RunnerState> &&
              Checkpointable<dl::ResultHistory>);
static_assert(Checkpointable<dl::BaseRunner> && Checkpointable<dl::TorchRunnerBase> && Checkpointable<dl::TorchRunner>);
// A sampler is no iterator, and a dataset has no state.
static_assert(!CheckpointableIterator<dl::data::Sampler> && !Checkpointable<dl::data::TensorDataset> &&
              !CheckpointableIterator<dl::ModelHandle> && !Checkpointable<dl::Batch>);

/// Loads the state of `from` into `into`; then `go` must return the same for both and leave the same state.
template <class T, class Go>
void check_round_trip(T& from, T& into, const Go& go) {
  const dl::State saved = dl::clone(from.state_dict());
  into.load_state_dict(saved);
  CHECK(dl::first_difference(into.state_dict(), saved) == "");
  CHECK(go(from) == go(into));
  CHECK(dl::first_difference(into.state_dict(), from.state_dict()) == "");
  CHECK_FALSE(dl::bitwise_equal(from.state_dict(), saved));  // `go` changes it
}

TEST_CASE("Checkpointable: loaders and streams continue after the saved position", "[runner]") {
  const auto loader = [](std::int64_t num_workers) {
    return std::make_shared<dl::data::Loader<dl::Batch>>(
        Points{make_points(50, 0), true},
        dl::data::LoaderOptions{.batch_size = 8, .shuffle = true, .seed = 3, .num_workers = num_workers});
  };
  const auto from = loader(0);
  const auto into = loader(1);
  from->start_epoch(2);
  REQUIRE(from->next());
  from->start_epoch(3);
  REQUIRE((from->next() && from->next()));
  check_round_trip(*from, *into, [](dl::data::Loader<dl::Batch>& it) {
    if (it.batch_size() == 0) {  // after load_state_dict there is no batch yet
      it.start_epoch(it.epoch());
    }
    REQUIRE(it.next());
    return it.batch().input.sum().item<double>();
  });

  struct Counter : dl::data::Stream<at::Tensor> {
    std::int64_t at = 0;
    std::optional<at::Tensor> next(std::int64_t n) override {
      at += n;
      return torch::arange(at - n, at);
    }
    void reset(std::int64_t) override { at = 0; }
    dl::State state_dict() const override { return at; }
    void load_state_dict(const dl::State& state) override { at = state.integer(); }
  } stream, other;
  stream.next(5);
  check_round_trip(stream, other, [](Counter& it) { return it.next(3)->sum().item<std::int64_t>(); });
}

TEST_CASE("Checkpointable: samplers continue with the saved order", "[runner]") {
  // The loader keeps the position in an epoch; the state of a sampler is its order.
  const auto same_order = [](dl::data::Sampler& from, dl::data::Sampler& into) {
    const auto orders = [](dl::data::Sampler& sampler) {
      std::vector<std::vector<std::int64_t>> out;
      for (const std::int64_t epoch : {0, 4}) {
        sampler.set_epoch(epoch);
        sampler.fill(0, out.emplace_back(10));
      }
      return out;
    };
    REQUIRE(from.size() == 10);
    const bool one_order = orders(from).front() == orders(from).back();
    CHECK((one_order || orders(into) != orders(from)));
    into.load_state_dict(from.state_dict());
    CHECK(dl::first_difference(into.state_dict(), from.state_dict()) == "");
    CHECK(orders(into) == orders(from));
  };
  using namespace dl::data;
  {
    RandomSampler from(10, 1, "train"), into(10, 2, "val");
    same_order(from, into);
  }
  {
    SequentialSampler from(10), into(10);
    same_order(from, into);
  }
  const std::vector<double> weights = {1, 2, 3, 4, 0, 5, 1, 1, 1, 7, 2};
  for (const bool replacement : {true, false}) {
    WeightedSampler from(weights, {.num_samples = 10, .replacement = replacement, .seed = 1, .split = "train"});
    WeightedSampler into(weights, {.num_samples = 10, .replacement = replacement, .seed = 2, .split = "val"});
    same_order(from, into);
  }
  const std::vector<std::int64_t> chosen = {5, 3, 90, 1, 2, 8, 13, 21, 34, 55};
  {
    SubsetSampler from(chosen, {.shuffle = true, .seed = 1, .split = "train"});
    SubsetSampler into(chosen, {.shuffle = true, .seed = 2, .split = "val"});
    same_order(from, into);
  }
  {
    DistributedSampler from(std::make_shared<RandomSampler>(20, 1, "train"), {.rank = 1, .world_size = 2});
    DistributedSampler into(std::make_shared<RandomSampler>(20, 2, "val"), {.rank = 1, .world_size = 2});
    same_order(from, into);
  }
}

TEST_CASE("Checkpointable: batch samplers continue after the saved batches", "[runner]") {
  const std::vector<std::int64_t> lengths = {3, 9, 4, 1, 7, 7, 2, 8, 5, 6, 1, 3, 9, 2, 4, 8, 5, 6, 7, 3};
  const auto next = [](dl::data::LengthBuckets& buckets) {
    std::vector<std::int64_t> indices(3);
    const auto count = buckets.next({.batch_size = 3}, indices);
    indices.resize(static_cast<std::size_t>(count));
    CHECK(count > 0);
    return indices;
  };
  dl::data::LengthBuckets from(lengths, {.boundaries = {3, 6}, .shuffle = true, .seed = 1, .split = "train"});
  dl::data::LengthBuckets into(lengths, {.boundaries = {3, 6}, .shuffle = true, .seed = 2, .split = "val"});
  from.set_epoch(3);
  next(from);
  next(from);
  check_round_trip(from, into, [&](dl::data::LengthBuckets& buckets) {
    std::vector<std::vector<std::int64_t>> out;
    for (int i = 0; i < 4; ++i) {
      out.push_back(next(buckets));
    }
    return out;
  });
}

TEST_CASE("Checkpointable: meters, metrics and losses continue with their averages", "[runner]") {
  const at::Tensor prediction = torch::tensor({{0.1, 0.7, 0.2}, {0.8, 0.1, 0.1}});
  const at::Tensor target = torch::tensor({1, 2});
  const auto feed = [&](auto& metrics) {
    metrics.update(prediction, target);
    return metrics.average().text(17);
  };
  const auto accuracy = [] { return dl::metrics::multiclass_accuracy(3, {.average = dl::metrics::Average::micro}); };
  {
    dl::StreamMetrics from({accuracy()}), into({accuracy()});
    feed(from);
    check_round_trip(from, into, feed);
  }
  {
    dl::GlobalMetrics from({accuracy()}), into({accuracy()});
    feed(from);
    check_round_trip(from, into, feed);
  }
  {
    dl::MultiTaskMetrics from, into;
    from.add("a", dl::StreamMetrics({accuracy()}));
    into.add("a", dl::StreamMetrics({accuracy()}));
    const auto feed_task = [&](dl::MultiTaskMetrics& metrics) {
      metrics.update({{"a", prediction, target}});
      return metrics.average().text(17);
    };
    feed_task(from);
    check_round_trip(from, into, feed_task);
  }
  {
    const auto make = [] { return dl::Losses({{"ce", torch::nn::CrossEntropyLoss()}}); };
    dl::Losses from = make(), into = make();
    const auto loss = [&](dl::Losses& losses) {
      losses(prediction, target);
      return losses.average().text(17);
    };
    loss(from);
    check_round_trip(from, into, loss);
  }
  {
    dl::AverageMeter from, into;
    from.update(2.0, 3);
    check_round_trip(from, into, [](dl::AverageMeter& meter) {
      meter.update(7.0, 1);
      return meter.avg();
    });
    dl::MetricMeter measured(accuracy()), fresh(accuracy());
    measured.update(prediction, target);
    check_round_trip(measured, fresh, [&](dl::MetricMeter& meter) {
      meter.update(prediction, prediction.argmax(1));
      return std::pair(meter.avg(), meter.count());
    });
    dl::AverageMeters several, others;
    several["loss"].update(2.0, 3);
    check_round_trip(several, others, [](dl::AverageMeters& meters) {
      meters["loss"].update(7.0, 1);
      return meters["loss"].avg();
    });
  }
}

TEST_CASE("Checkpointable: metrics of batches continue with their averages", "[runner]") {
  struct Largest : dl::BatchMetric<dl::Batch> {
    bool higher_better() const override { return true; }
    dl::MetricValue compute(const dl::Batch& batch) override { return batch.input.amax(1); }
  };
  const dl::Batch first{.input = torch::tensor({{1.0, 2.0}, {5.0, 3.0}})};
  const dl::Batch second{.input = torch::tensor({{0.25, 0.5}})};
  {
    const auto metric = std::make_shared<Largest>();
    dl::DatasetMetric<dl::Batch> from(metric), into(metric);
    from.update(first);
    check_round_trip(from, into, [&](dl::DatasetMetric<dl::Batch>& largest) {
      largest.update(second);
      CHECK(largest.eval() == 2.5);  // of 2, 5 and 0.5
      return largest.count();
    });
  }
  {
    const auto make = [] { return dl::BatchMetrics<dl::Batch>({{"largest", std::make_shared<Largest>()}}); };
    dl::BatchMetrics<dl::Batch> from = make(), into = make();
    from.update(first);
    check_round_trip(from, into, [&](dl::BatchMetrics<dl::Batch>& metrics) {
      metrics.update(second);
      return metrics.average().text(17);
    });
  }
}

TEST_CASE("Checkpointable: optimizers and schedulers take the same next step", "[runner]") {
  const auto check = [](const auto& make) {
    at::Tensor a = torch::ones({3}, torch::requires_grad());
    at::Tensor b = torch::ones({3}, torch::requires_grad());
    const auto from = make(a);
    const auto into = make(b);
    dl::optim::LRScheduler from_schedule(*from, 10, {.type = "linear"});
    dl::optim::LRScheduler into_schedule(*into, 10, {.type = "linear"});
    const auto step = [&](dl::optim::Optimizer& optimizer) {
      at::Tensor& x = &optimizer == from.get() ? a : b;
      x.mutable_grad() = torch::full({3}, 0.5);
      optimizer.step();
      return x[0].template item<double>();
    };
    step(*from);
    from_schedule.step();
    {
      const torch::NoGradGuard no_grad;
      b.copy_(a);
    }
    check_round_trip<dl::optim::Optimizer>(*from, *into, step);
    check_round_trip<dl::optim::Scheduler>(from_schedule, into_schedule, [](dl::optim::Scheduler& schedule) {
      schedule.step();
      return schedule.get_last_lr();
    });
  };
  check([](at::Tensor& x) {
    return std::make_unique<dl::optim::AdamW>(std::vector<at::Tensor>{x}, dl::optim::OptimizerOptions{.lr = 0.1});
  });
  check([](at::Tensor& x) {
    return std::make_unique<dl::optim::Adam>(
        std::vector<at::Tensor>{x}, dl::optim::OptimizerOptions{.lr = 0.1, .weight_decay = 0.1, .amsgrad = true});
  });
  check([](at::Tensor& x) {
    return std::make_unique<dl::optim::SGD>(std::vector<at::Tensor>{x},
                                            dl::optim::OptimizerOptions{.lr = 0.1, .momentum = 0.9});
  });
  check([](at::Tensor& x) {
    return dl::optim::adapt_torch_optimizer(
        std::make_shared<torch::optim::Adam>(std::vector<at::Tensor>{x}, torch::optim::AdamOptions(0.1)));
  });
}

TEST_CASE("Checkpointable: StepLR continues with the saved rate", "[runner]") {
  const auto make = [] {
    return dl::optim::SGD({torch::ones({3}, torch::requires_grad())}, dl::optim::OptimizerOptions{.lr = 1.0});
  };
  auto one = make();
  auto two = make();
  dl::optim::StepLR from(one, 2, 0.5), into(two, 2, 0.5);
  from.step();
  from.step();
  from.step();
  two.load_state_dict(one.state_dict());
  check_round_trip(from, into, [](dl::optim::StepLR& schedule) {
    schedule.step();
    CHECK(schedule.get_last_lr() == std::vector<double>{0.25});
    return schedule.last_epoch();
  });
  CHECK(two.param_groups()[0].lr == 0.25);
}

TEST_CASE("Checkpointable: results and counters", "[runner]") {
  dl::Result result;
  result["val"].set("loss", 0.25);
  dl::ResultHistory from, into;
  from.append(0, result);
  check_round_trip(from, into, [&](dl::ResultHistory& book) {
    book.append(1, result);
    return book.rows().size();
  });

  dl::RunnerState state, other;
  state.train = {.epoch = 2, .global_step = 30, .micro_step = 60};
  state.elastic.restart_count = 1;
  state.rng.capture();
  const auto drawn = torch::rand({4});
  check_round_trip(state, other, [&](dl::RunnerState& taken) {
    taken.rng.restore();
    CHECK(torch::rand({4}).equal(drawn));
    return ++taken.train.global_step;
  });
}

TEST_CASE("Checkpointable: a runner, its model and its average", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  struct Averaged : TinyRunner {
    explicit Averaged(const TinyConfig& tiny) : TinyRunner(tiny) { ema = make_tiny_net(tiny); }
    ~Averaged() override { close(); }
  };
  Averaged from(config);
  from.train();
  const dl::State saved = dl::clone(from.state_dict());
  from.close();
  config.epochs = 2;  // takes no part in the id
  Averaged into(config);
  into.initialize();
  CHECK_FALSE(dl::bitwise_equal(into.model.state_dict(), saved.at("model")));
  into.load_checkpoint(saved);
  for (const char* part : {"state", "dataloaders", "results", "loop", "model", "ema", "optimizer", "scheduler"}) {
    CAPTURE(part);
    CHECK(dl::first_difference(into.state_dict().at(part), saved.at(part)) == "");
  }
  into.train();
  CHECK(into.state().train.epoch == 2);
}

}  // namespace runner_test
