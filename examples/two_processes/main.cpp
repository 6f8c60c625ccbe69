// One config, one or several processes: each rank reads its part of the samples, and all have the same model.
//
//   two_processes --config two_processes.yaml                                  one process
//   danling launch -n 2 -- two_processes --config two_processes.yaml           two, with the same global batch
#include <cstdio>

#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;

struct WavesConfig : dl::RunnerConfig {
  std::int64_t hidden = 64;
  void fields(dl::Fields& f) override { f("hidden", hidden, "features of a hidden layer"); }
};

/// Counts what this rank has read since the program began, and adds up the counts of all ranks.
struct Counter : dl::Callback {
  std::int64_t mine = 0;
  void on_step(const dl::StepEvent& event) override { mine += event.samples; }
  void on_result(const dl::ResultEvent& event) override {
    auto all = torch::tensor({mine});
    event.runner.parallelism().group().all_reduce(all);  // every rank calls it
    std::printf("rank %d of %d: %d of %d samples so far, val loss %.6f\n", static_cast<int>(event.runner.rank()),
                static_cast<int>(event.runner.world_size()), static_cast<int>(mine), all.item<int>(),
                event.result.at("val.loss"));
    std::fflush(stdout);
  }
};

class WavesRunner : public dl::TorchRunner {
 public:
  explicit WavesRunner(const WavesConfig& config) : TorchRunner(config) {  // with the same seed on all ranks
    const auto x = torch::rand({4096, 2}) * 2 - 1;
    const auto y = torch::sin(4 * x.select(1, 0)) * torch::cos(3 * x.select(1, 1));
    const auto parts = dl::data::random_split(dl::data::TensorDataset(x, y.unsqueeze(1)), {0.75, 0.25}, /*seed=*/0);
    datasets["train"] = parts[0];
    datasets["val"] = parts[1];
    using namespace torch::nn;
    model = Sequential(Linear(2, config.hidden), Tanh(), Linear(config.hidden, config.hidden), Tanh(),
                       Linear(config.hidden, 1));
    criterion = MSELoss();
    add(Counter());
  }

 protected:
  /// `dataloader.batch_size` counts the samples of an update, over all ranks: each reads its share.
  std::shared_ptr<dl::data::Loader<dl::Batch>> build_dataloader(const dl::data::Source<dl::Batch>& source,
                                                                dl::data::LoaderOptions options) override {
    if (options.batch_size % world_size() != 0) {
      throw dl::ConfigError("[waves] expected a batch_size that " + std::to_string(world_size()) +
                            " processes can share, got " + std::to_string(options.batch_size));
    }
    options.batch_size /= world_size();
    return TorchRunner::build_dataloader(source, std::move(options));
  }
};

int main(int argc, char** argv) { return dl::run<WavesRunner, WavesConfig>(argc, argv); }
