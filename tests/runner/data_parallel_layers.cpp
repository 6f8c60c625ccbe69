// Data parallel training of models with running statistics: SyncBatchNorm, and the buffers of other layers.
#include <danling/nn/sync_batch_norm.hpp>

#include "ddp_runner.hpp"
#include "runner/data_parallel_buffers.hpp"

namespace runner_test {
namespace {

/// Points through a layer of batch normalization, named "norm".
template <class Norm>
class BufferedRunner : public TinyRunner {
 public:
  explicit BufferedRunner(const TinyConfig& config) : TinyRunner(config) {
    torch::manual_seed(5);
    torch::nn::Sequential net;
    net->push_back("in", torch::nn::Linear(4, config.hidden));
    net->push_back("norm", Norm(torch::nn::BatchNormOptions(config.hidden).momentum(momentum)));
    net->push_back("tanh", torch::nn::Tanh());
    net->push_back("out", torch::nn::Linear(config.hidden, 3));
    model = net;
  }
  static inline double momentum = 0.1;
  at::Tensor running_mean() const { return model.state_dict().at("norm.running_mean").tensor(); }
};
using SyncedRunner = DdpRunner<BufferedRunner<dl::nn::SyncBatchNorm>>;
using PlainRunner = DdpRunner<BufferedRunner<torch::nn::BatchNorm1d>>;

TinyConfig norm_config() {
  TinyConfig config;
  config.epochs = 3;
  config.optim.type = "sgd";
  config.optim.momentum = 0.9;
  config.dataloader.batch_size = 4;
  config.dataloader.splits["train"].drop_last = true;
  return config;
}

template <class Runner>
std::string train_norm(TinyConfig config, const dl::Group& group) {
  const Folder folder;
  config.workspace_root = folder.path().string();
  Runner runner(config, group);
  runner.train();
  return runner.numbers();
}

TEST_CASE("ddp: processes with SyncBatchNorm are one process with the whole batch", "[runner][ddp]") {
  struct SyncedCase {
    std::string name;
    int processes;
    std::function<void(TinyConfig&)> set;
    double tolerance = 1e-6;
  };
  static constexpr auto without_last = [](TinyConfig& config) {
    config.precision = "fp64", config.records = 50, config.dataloader.splits["train"].drop_last = false;
  };
  const SyncedCase cases[] = {
      {"two processes", 2, [](TinyConfig&) {}},
      {"three", 3, [](TinyConfig&) {}},
      {"accumulation", 2, [](TinyConfig& config) { config.accum_steps = 3; }},
      {"float64", 2, [](TinyConfig& config) { config.precision = "fp64"; }, 1e-12},
      {"no overlap, no buffers of others", 2,
       [](TinyConfig& config) { config.ddp.overlap = false, config.ddp.broadcast_buffers = false; }},
      // The last batch, of two samples, leaves one process without: it takes part in the statistics of the others. The
      // variance of so few samples magnifies rounding.
      {"a process without the last batch", 3, without_last, 1e-12},
      {"the same without a broadcast", 3,
       [](TinyConfig& config) { without_last(config), config.ddp.broadcast_buffers = false; }, 1e-12},
      {"the same by collectives of the group", 3,
       [](TinyConfig& config) { without_last(config), config.ddp.shared_memory = false; }, 1e-12},
      {"the same inside an accumulation window, by steps, with lines of the log", 3,
       [](TinyConfig& config) {
         without_last(config), config.accum_steps = 3;
         config.epochs.reset(), config.steps = 7, config.log_interval = 1;
       },
       1e-12},
  };
  for (const SyncedCase& norm_case : cases) {
    INFO(norm_case.name);
    TinyConfig config = norm_config();
    norm_case.set(config);
    TinyConfig whole = config;
    whole.dataloader.batch_size = *config.dataloader.batch_size * norm_case.processes;
    const std::string reference = train_norm<SyncedRunner>(whole, dl::Group());
    CHECK(relative_difference(train_norm<PlainRunner>(whole, dl::Group()), reference) == 0.0);
    const auto texts = danling_test::run_ranks(
        norm_case.processes, [&](const dl::Group& group) { return train_norm<SyncedRunner>(config, group); });
    for (const std::string& text : texts) {
      CHECK(text == texts.front());
    }
    CHECK(relative_difference(texts.front(), reference) < norm_case.tolerance);
  }
}

TEST_CASE("ddp: a rank that calls SyncBatchNorm less often ends all ranks with words", "[runner][ddp]") {
  const auto texts = danling_test::run_ranks(2, [](const dl::Group& group) {
    const Folder folder;
    TinyConfig config = norm_config();
    config.workspace_root = folder.path().string();
    SyncedRunner runner(config, group);
    runner.before_step = [&](TinyRunner& self, std::int64_t done) {
      if (group.rank() == 1 && done == 1) {
        self.model.train(false);
      }
    };
    try {
      runner.train();
      return std::string("no error");
    } catch (const dl::Error& error) {
      return std::string(error.what());
    }
  });
  CHECK_THAT(texts[0], ContainsSubstring(
                           "[nn.SyncBatchNorm] expected all ranks with a batch at the same layer, number 1, got rank 1 "
                           "elsewhere in its step; all ranks must call the layers equally often and in the same order, "
                           "forward and backward"));
  CHECK_THAT(texts[1], ContainsSubstring("in a SyncBatchNorm; all ranks must call it equally often") ||
                           ContainsSubstring("rank 0"));
}

/// Returns the error of each of three processes. The last has ended its pass when the fifth micro-batch begins.
std::vector<std::string> errors_in_last_batch(const std::function<void(TinyRunner& self, int rank)>& in_last_batch) {
  return danling_test::run_ranks(3, [&](const dl::Group& group) {
    const Folder folder;
    TinyConfig config = norm_config();
    config.workspace_root = folder.path().string();
    config.records = 50;
    config.dataloader.splits["train"].drop_last = false;
    SyncedRunner runner(config, group);
    runner.before_step = [&](TinyRunner& self, std::int64_t done) {
      if (done == 4) {
        in_last_batch(self, group.rank());
      }
    };
    try {
      runner.train();
      return std::string("no error");
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
  });
}

TEST_CASE("ddp: a rank that leaves out SyncBatchNorm while another has ended its pass ends all with words",
          "[runner][ddp]") {
  const auto texts = errors_in_last_batch([](TinyRunner& self, int rank) { self.model.train(rank != 1); });
  CHECK_THAT(texts[0], ContainsSubstring("number 1, got rank 1 elsewhere in its step"));
  for (const std::size_t rank : {1, 2}) {
    CHECK_THAT(texts[rank], StartsWith("[parallelism.agree] expected all processes at the end of their step, got rank "
                                       "0 in a SyncBatchNorm; all ranks must call it equally often"));
  }
}

TEST_CASE("ddp: an error of a rank reaches those that are inside a SyncBatchNorm", "[runner][ddp]") {
  const auto texts = errors_in_last_batch([](TinyRunner&, int rank) {
    if (rank == 1) {
      throw std::runtime_error("no such record");
    }
  });
  CHECK_THAT(texts[1], StartsWith("no such record"));
  for (const std::size_t rank : {0, 2}) {
    CHECK_THAT(texts[rank], ContainsSubstring("rank 1: no such record; in train_step"));
  }
}

TEST_CASE("ddp: too few values for SyncBatchNorm are one error on all ranks", "[runner][ddp]") {
  const auto texts = danling_test::run_ranks(2, [](const dl::Group& group) {
    const Folder folder;
    TinyConfig config = norm_config();
    config.workspace_root = folder.path().string();
    config.records = 9;  // the last batch: one record, of rank 0
    config.dataloader.splits["train"].drop_last = false;
    SyncedRunner runner(config, group);
    try {
      runner.train();
      return std::string("no error");
    } catch (const dl::DataError& error) {
      return std::string(error.what());
    }
  });
  CHECK(texts[0].substr(0, texts[0].find(';')) == texts[1].substr(0, texts[1].find(';')));
  CHECK_THAT(texts[0], StartsWith("[nn.SyncBatchNorm] expected more than one value per channel over all ranks in "
                                  "training, got 1; use larger batches, or set dataloader.drop_last"));
}

TEST_CASE("ddp: SyncBatchNorm with virtual ranks is refused by name", "[runner][ddp]") {
  const Folder folder;
  TinyConfig config = norm_config();
  config.workspace_root = folder.path().string();
  config.deterministic = true;
  config.parallel.virtual_ranks = 2;
  SyncedRunner runner(config, dl::Group());
  CHECK(
      error_of<dl::ConfigError>([&] { runner.train(); }) ==
      "[runner.materialize_model] expected no SyncBatchNorm with parallel.virtual_ranks, got 'norm': shards are "
      "computed one after another, and its statistics would need all of them at once; use BatchNorm, whose statistics "
      "are those of a shard, or unset parallel.virtual_ranks");
}

std::string exact_text(const at::Tensor& tensor) {
  std::string out;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    out += dl::detail::concat(tensor[i].item<double>(), " ");
  }
  return out;
}

TEST_CASE("ddp: buffers are those of rank 0 on all ranks, from window to window and in evaluations", "[runner][ddp]") {
  const auto trained = [](bool broadcasts) {
    return danling_test::run_ranks(2, [&](const dl::Group& group) {
      const Folder folder;
      TinyConfig config = norm_config();
      config.workspace_root = folder.path().string();
      config.accum_steps = 2;
      config.ddp.broadcast_buffers = broadcasts;
      PlainRunner runner(config, group);
      std::string differs_at;  // micro-batches of a window, and evaluations
      const auto compare = [&](PlainRunner& self, const std::string& place) {
        const auto all = group.all_gather(exact_text(self.running_mean()));
        if (all[0] != all[1] && differs_at.find(place) == std::string::npos) {
          differs_at += place;
        }
      };
      runner.before_step = [&](TinyRunner& self, std::int64_t done) {
        if (done < 4) {
          compare(static_cast<PlainRunner&>(self), dl::detail::concat(done % 2, " "));
        }
      };
      runner.before_evaluation_step = [&](TinyRunner& self, std::int64_t done) {
        if (done == 0) {
          compare(static_cast<PlainRunner&>(self), "evaluation ");
        }
      };
      runner.train();
      return dl::detail::concat(differs_at, "; ", exact_text(runner.running_mean()));
    });
  };
  const auto shared = trained(true), separate = trained(false);
  CHECK_THAT(shared[0], StartsWith("1 ; "));
  CHECK(shared[0] == shared[1]);
  CHECK_THAT(separate[0], StartsWith("1 0 evaluation ; "));
  CHECK(separate[0] != separate[1]);
  // Running statistics do not enter training: those of rank 0 are its own.
  CHECK(shared[0].substr(shared[0].find(';')) == separate[0].substr(separate[0].find(';')));
}

/// Each rank reads all records of its own datasets.
class OwnDataParallel : public dl::detail::DataParallel {
 public:
  using DataParallel::DataParallel;
  dl::AxisPlace data_share() const override { return {}; }
};

/// Rank 0 has two batches, the others six.
template <class Norm>
struct UnevenBufferedRunner : BufferedRunner<Norm> {
  UnevenBufferedRunner(const TinyConfig& config, dl::Group of) : BufferedRunner<Norm>(config), group(std::move(of)) {
    this->datasets["train"] = Points{make_points(group.rank() == 0 ? 8 : 24, 50 * group.rank()), true};
  }
  void init_distributed() override {
    this->set_parallelism(std::make_unique<OwnDataParallel>(group, this->config().ddp, std::chrono::seconds(60)));
  }
  dl::StepOutput train_step(dl::Batch& batch) override {
    if (bad_batches.contains(this->micro_batches)) {
      batch.input = batch.input * std::numeric_limits<double>::quiet_NaN();
    }
    return BufferedRunner<Norm>::train_step(batch);
  }
  dl::Group group;
  std::set<std::int64_t> bad_batches = {};
};

TEST_CASE("ddp: after the first rank has ended its pass, buffers are those of the next one with data",
          "[runner][ddp]") {
  const auto trained = [](bool broadcasts) {
    return danling_test::run_ranks(2, [&](const dl::Group& group) {
      const Folder folder;
      TinyConfig config = norm_config();
      config.workspace_root = folder.path().string();
      config.ddp.broadcast_buffers = broadcasts;
      BufferedRunner<torch::nn::BatchNorm1d>::momentum = 1.0;  // statistics of the last batch alone
      UnevenBufferedRunner<torch::nn::BatchNorm1d> runner(config, group);
      runner.train();
      return exact_text(runner.running_mean());
    });
  };
  const auto shared = trained(true), separate = trained(false);
  CHECK(shared[0] == separate[1]);
  CHECK(shared[1] == separate[1]);
  CHECK(separate[0] != separate[1]);
}

template <class Norm>
void check_skips_without_rank_0() {
  const auto texts = danling_test::run_ranks(2, [](const dl::Group& group) {
    const Folder folder;
    TinyConfig config = norm_config();
    config.workspace_root = folder.path().string();
    config.epochs = 1;
    config.on_nonfinite = "skip";
    BufferedRunner<Norm>::momentum = 0.5;
    UnevenBufferedRunner<Norm> runner(config, group);
    std::string before;
    runner.before_step = [&](TinyRunner&, std::int64_t done) {
      if (done == 5) {
        before = exact_text(runner.running_mean());
      }
    };
    runner.bad_batches = group.rank() == 1 ? std::set<std::int64_t>{5} : std::set<std::int64_t>{};
    runner.train();
    const std::string after = exact_text(runner.running_mean());
    return dl::detail::concat(before.empty() || before == after ? "" : "changed: ", after);
  });
  CHECK(texts[0] == texts[1]);
  CHECK(texts[0].find("nan") == std::string::npos);
  CHECK_THAT(texts[1], !StartsWith("changed"));
}

TEST_CASE("ddp: a skipped update leaves no trace in the buffers of a rank that has ended its pass", "[runner][ddp]") {
  check_skips_without_rank_0<torch::nn::BatchNorm1d>();
  check_skips_without_rank_0<dl::nn::SyncBatchNorm>();
}

TEST_CASE("ddp: one message per dtype of buffers, none without buffers", "[runner][ddp]") {
  danling_test::check_ranks(
      danling_test::run_ranks(2,
                              [](const dl::Group& group) {
                                const auto norms = torch::nn::Sequential(
                                    torch::nn::BatchNorm1d(3), torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
                                dl::detail::SharedBuffers none((torch::nn::Linear(3, 2))), some(norms);
                                if (group.rank() == 0) {
                                  none.broadcast(group, 0);  // the other rank takes no part
                                  some.broadcast(group, 0);
                                } else {
                                  at::Tensor floats = torch::zeros({10});
                                  at::Tensor integers = torch::ones({2}, at::kLong);
                                  group.broadcast(floats, 0);
                                  group.broadcast(integers, 0);
                                  danling_test::expect(floats.sum().item<float>() == 5, "means of 0, variances of 1");
                                  danling_test::expect(integers.sum().item<int>() == 0, "no batches");
                                }
                                group.barrier();
                                return std::string("ok");
                              }),
      "ok");
}

}  // namespace
}  // namespace runner_test
