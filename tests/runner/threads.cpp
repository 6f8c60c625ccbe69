// Several runners in one process.
#include <thread>

#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("TorchRunner: runners on several threads give the results of one after another", "[runner]") {
  class Hosted : public TinyRunner {
   public:
    Hosted(const TinyConfig& config, double scale) : TinyRunner(config) {
      const at::NoGradGuard no_grad;
      double value = scale;
      for (auto& [name, parameter] : model.named_parameters()) {
        parameter.copy_(torch::linspace(-value, value, parameter.numel()).view_as(parameter));
        value *= 0.9;
      }
    }
  };
  const auto train = [](double scale) {
    const Folder folder;
    TinyConfig config(folder);
    config.dropout = 0;
    config.epochs = 3;
    config.num_threads = 1;
    Hosted runner(config, scale);
    return runner.train().latest()->result.text(9);
  };
  const std::vector<double> scales = {0.5, 0.5, 1.0};  // two with the same config
  std::vector<std::string> alone;
  for (const double scale : scales) {
    alone.push_back(train(scale));
  }
  std::vector<std::string> together(scales.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = train(scales[i]); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  CHECK(together == alone);
}

}  // namespace
}  // namespace runner_test
