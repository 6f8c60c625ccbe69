// Precision of forward passes: autocast and its context.
#include "fixture.hpp"

namespace runner_test {
namespace {

TEST_CASE("TorchRunner: bf16 trains under autocast, parameters stay float32", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 2;
  config.precision = "bf16";
  TinyRunner runner(config);
  runner.train();
  CHECK(runner.model.named_parameters()[0].second.scalar_type() == at::kFloat);
  CHECK(std::isfinite(*runner.results().latest_score()));
}

TEST_CASE("PrecisionContext: restores what was set, also when nested", "[runner]") {
  const auto x = torch::ones({2, 2});
  {
    const dl::PrecisionContext outer(at::kCPU, at::kBFloat16);
    CHECK(torch::mm(x, x).scalar_type() == at::kBFloat16);
    {
      const dl::PrecisionContext inner(at::kCPU, std::nullopt);
      CHECK(torch::mm(x, x).scalar_type() == at::kBFloat16);
    }
  }
  CHECK(torch::mm(x, x).scalar_type() == at::kFloat);
}

}  // namespace
}  // namespace runner_test
