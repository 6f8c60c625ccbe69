// A batch type of one's own, with metrics and several losses over it.
#include "gate.hpp"

namespace {

namespace dl = gate::dl;

struct Cloud {
  at::Tensor input, target, prediction;
  std::int64_t size() const { return input.size(0); }
  Cloud to(c10::Device device) const { return {input.to(device), target.to(device), prediction}; }
};

struct Clouds {
  dl::Batch all;
  std::int64_t size() const { return all.size(); }
  Cloud get_batch(std::span<const std::int64_t> indices) {
    const auto index = torch::tensor(at::ArrayRef<std::int64_t>(indices.data(), indices.size()), torch::kLong);
    return {all.input.index_select(0, index), all.target.index_select(0, index), {}};
  }
};

struct Right : dl::BatchMetric<Cloud> {
  bool higher_better() const override { return true; }
  dl::MetricValue compute(const Cloud& batch) override { return batch.prediction.argmax(1).eq(batch.target); }
};
struct Entropy : dl::Loss<Cloud> {
  dl::MetricValue compute(const Cloud& batch) override {
    return torch::nn::functional::cross_entropy(batch.prediction, batch.target);
  }
};
struct Size : dl::Loss<Cloud> {
  dl::MetricValue compute(const Cloud& batch) override { return 0.01 * batch.prediction.square().mean(); }
};

struct Config : gate::Config {
  Config() {
    epochs = 4;
    accum_steps = 2;
    optim.type = "adam";
    optim.lr = 0.02;
    score_name = "right";
  }
};

class Runner : public gate::Stopped<Cloud> {
 public:
  explicit Runner(const Config& config) : Stopped(config) {
    model = gate::net();
    criterion = dl::BatchLosses<Cloud>({{"entropy", std::make_shared<Entropy>()}, {"size", std::make_shared<Size>()}});
    metrics = dl::BatchMetrics<Cloud>({{"right", std::make_shared<Right>()}});
    datasets["train"] = Clouds{gate::points(100, 0)};
    datasets["val"] = Clouds{gate::points(40, 1000)};
  }
};

}  // namespace

int main(int argc, char** argv) { return dl::run<Runner, Config>(argc, argv); }
