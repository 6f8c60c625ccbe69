// Steps over windows of three micro-batches, clipped, read by two workers, with metrics of a stream.
#include "gate.hpp"

namespace {

struct Config : gate::Config {
  Config() {
    steps = 40;
    accum_steps = 3;
    max_grad_norm = 0.5;
    checkpoint.interval = 5;
    dataloader.num_workers = 2;
    optim.type = "sgd";
    optim.lr = 0.1;
    sched.type = "linear";
  }
};

class Runner : public gate::Stopped<gate::dl::Batch> {
 public:
  explicit Runner(const Config& config) : Stopped(config) {
    model = gate::net();
    criterion = torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().ignore_index(1));
    datasets["train"] = gate::dataset(100, 0);
    datasets["val"] = gate::dataset(40, 1000);
    using namespace gate::dl::metrics;
    metrics = multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
  }
};

}  // namespace

int main(int argc, char** argv) { return gate::dl::run<Runner, Config>(argc, argv); }
