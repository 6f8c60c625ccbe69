// Factories of metrics by their short names, in programs that open the namespaces of danling.
#include "fixture.hpp"

namespace metrics_namespace_tests {

using namespace danling;

std::string names_of_metrics(const MetricsBase& measured) {
  std::string out;
  for (const auto& [name, value] : measured.average()) {
    out += (out.empty() ? "" : " ") + name;
  }
  return out;
}

struct ShortNameRunner : TorchRunner {
  explicit ShortNameRunner(const runner_test::TinyConfig& config) : TorchRunner(config) {
    metrics = accuracy_metrics(2);
    train_metrics = metrics::accuracy_metrics(2);  // before `::` a compiler finds the namespace, not the member
  }
  ~ShortNameRunner() override { close(); }
};

TEST_CASE("factories of metrics: a runner of a program that opens namespace danling assigns them by their names",
          "[runner]") {
  const runner_test::Folder folder;
  ShortNameRunner runner{runner_test::TinyConfig(folder)};
  CHECK(names_of_metrics(*runner.metrics) == "acc");
  CHECK(names_of_metrics(*runner.train_metrics) == "acc");
}

TEST_CASE("factories of metrics: both namespaces name the same functions, so opening both is not ambiguous",
          "[runner]") {
  using namespace danling::metrics;
  CHECK(names_of_metrics(*accuracy_metrics(2)) == "acc");
  CHECK(names_of_metrics(*binary_metrics()) == "auroc auprc acc f1 mcc");
  CHECK(names_of_metrics(*multiclass_metrics(3)) == "auroc auprc acc f1 mcc");
  CHECK(names_of_metrics(*multilabel_metrics(3)) == "auroc auprc acc f1 mcc");
  CHECK(names_of_metrics(*regression_metrics()) == "pearson spearman r2 mse rmse");
}

}  // namespace metrics_namespace_tests
