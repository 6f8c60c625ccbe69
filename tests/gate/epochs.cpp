// Epochs with evaluation, a schedule, dropout and metrics of whole splits.
#include "gate.hpp"

namespace {

struct Config : gate::Config {
  Config() {
    epochs = 5;
    optim.type = "adamw";
    optim.lr = 0.02;
    sched.type = "cosine";
    score_name = "acc";
  }
};

class Runner : public gate::Stopped<gate::dl::Batch> {
 public:
  explicit Runner(const Config& config) : Stopped(config) {
    model = gate::net();
    criterion = torch::nn::CrossEntropyLoss();
    datasets["train"] = gate::dataset(100, 0);
    datasets["val"] = gate::dataset(40, 1000);
    metrics = gate::dl::metrics::multiclass_metrics(3);
  }
};

}  // namespace

int main(int argc, char** argv) { return gate::dl::run<Runner, Config>(argc, argv); }
