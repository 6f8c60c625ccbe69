// Trainer: a run composed of parts, without a derived runner.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("Trainer: trains bit for bit as a derived runner, and closes the run", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 3;
  fs::path dir;
  {
    dl::Trainer trainer(config);
    trainer.model = make_tiny_net(config);
    trainer.criterion = torch::nn::CrossEntropyLoss();
    trainer.datasets["train"] = Points{make_points(config.records, 0), true};
    trainer.datasets["val"] = Points{make_points(20, 1000), false};
    trainer.metrics = make_tiny_metrics();
    trainer.train();
    dir = trainer.workspace().dir();
  }
  check_same(run_through(config), outcome_of(dir));
}

}  // namespace
}  // namespace runner_test
