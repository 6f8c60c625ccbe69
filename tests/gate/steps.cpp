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

class Runner : public gate::dl::TorchRunner {
 public:
  explicit Runner(const Config& config) : TorchRunner(config) {
    model = gate::net();
    criterion = torch::nn::CrossEntropyLoss(torch::nn::CrossEntropyLossOptions().ignore_index(1));
    datasets["train"] = gate::dataset(100, 0);
    datasets["val"] = gate::dataset(40, 1000);
    using namespace gate::dl::metrics;
    metrics = multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
  }

 protected:
  gate::dl::StepOutput train_step(gate::dl::Batch& batch) override {
    stop_.count();
    return TorchRunner::train_step(batch);
  }

 private:
  gate::Stop stop_;
};

}  // namespace

int main(int argc, char** argv) { return gate::dl::run<Runner, Config>(argc, argv); }
