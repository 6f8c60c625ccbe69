#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("Trainer: composing the parts trains bit for bit as deriving does, and closes the run", "[runner]") {
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
    using namespace dl::metrics;
    trainer.metrics =
        multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
    trainer.train();
    dir = trainer.workspace().dir();
  }
  check_same(run_through(config), outcome_of(dir));
}

}  // namespace
}  // namespace runner_test
