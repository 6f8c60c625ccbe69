// MetricsConfig: metrics by name, from YAML and the command line.
#include <danling/config/tree.hpp>

#include "fixture.hpp"

namespace runner_test {

using dl::ConfigError;
using dl::metrics::MetricsSpec;

struct MetricsProgram : dl::Config {
  MetricsSpec metrics;
  void fields(dl::Fields& f) override { f("metrics", metrics, "what is measured"); }
};

std::string metric_names(const dl::Metrics& metrics) {
  std::string out;
  for (const auto& [name, value] : metrics.average()) {
    out += (out.empty() ? "" : " ") + name;
  }
  return out;
}

TEST_CASE("MetricsSpec: YAML builds metrics, in a program without a runner too", "[runner]") {
  MetricsProgram program;
  CHECK(dl::metrics::build_metrics(program.metrics) == nullptr);
  dl::load_text(program,
                "metrics: {type: multiclass, num_classes: 10, mode: stream, average: micro, metrics: [acc, f1, "
                "auroc]}\n",
                "run.yaml");
  dl::finalize(program);
  const auto metrics = dl::metrics::build_metrics(program.metrics);
  CHECK(metric_names(*metrics) == "acc f1 auroc");
  CHECK(dynamic_cast<dl::StreamMetrics*>(metrics.get()) != nullptr);
  // Micro: of four labels three, where macro has the mean of 1 and 1/2.
  const auto scores = torch::eye(10).index_select(0, torch::tensor({0, 0, 1, 0}));
  metrics->update(scores, torch::tensor({0, 0, 1, 1}));
  CHECK(*metrics->average().number("acc") == 0.75);
}

TEST_CASE("MetricsSpec: a beta of 0 is refused with the config", "[runner]") {
  MetricsProgram program;
  program.metrics.beta = 0.0;
  CHECK(error_of<ConfigError>([&] { dl::validate(program); }) ==
        "[config.validate] expected a value above 0 for 'metrics.beta', got 0.0");
}

TEST_CASE("MetricsSpec: the command line sets each key", "[runner]") {
  MetricsProgram program;
  const char* words[] = {"program", "--metrics.type",         "Multiclass", "--metrics.num_classes",
                         "6",       "--metrics.metrics",      "acc,fbeta",  "--metrics.top_k",
                         "1,5",     "--metrics.beta",         "2",          "--metrics.mode",
                         "global",  "--metrics.average",      "weighted",   "--metrics.device",
                         "cpu",     "--metrics.ignore_index", "null"};
  REQUIRE_FALSE(dl::parse(program, static_cast<int>(std::size(words)), words));
  CHECK(program.metrics.ignore_index == std::nullopt);
  CHECK(program.metrics.device == at::Device("cpu"));
  CHECK(metric_names(*dl::metrics::build_metrics(program.metrics)) == "acc acc5 fbeta fbeta5");
}

TEST_CASE("MetricsSpec: `scores` is detect, probabilities or logits", "[runner]") {
  const auto accuracy = [](const std::string& scores) {
    MetricsProgram program;
    dl::load_text(program, "metrics: {type: binary, metrics: [acc], scores: " + scores + "}\n", "run.yaml");
    dl::finalize(program);
    const auto metrics = dl::metrics::build_metrics(program.metrics);
    metrics->update(torch::tensor({0.25, 0.75}), torch::tensor({1, 1}));
    return *metrics->average().number("acc");
  };
  CHECK(accuracy("detect") == 0.5);
  CHECK(accuracy("probabilities") == 0.5);
  CHECK(accuracy("logits") == 1.0);
}

TEST_CASE("MetricsSpec: errors name the wrong key or value", "[runner]") {
  const auto refusal = [](const std::string& yaml) {
    return error_of<ConfigError>([&] {
      MetricsProgram program;
      dl::load_text(program, "metrics: " + yaml + "\n", "run.yaml");
      dl::finalize(program);
      dl::metrics::build_metrics(program.metrics);
    });
  };
  CHECK_THAT(refusal("{type: multiclass, num_classes: 3, metrics: [acc, aurok]}"),
             ContainsSubstring("got 'aurok'; did you mean 'auroc'?"));
  CHECK_THAT(refusal("{type: mutliclass}"), ContainsSubstring("got 'mutliclass'; did you mean 'multiclass'?"));
  CHECK_THAT(refusal("{type: binary, mode: streem}"), ContainsSubstring("'streem'"));
  CHECK_THAT(refusal("{type: binary, metric: [acc]}"), ContainsSubstring("'metrics.metric'"));
  CHECK(
      refusal("{type: binary, device: gpu0}") ==
      "[config.parse] expected a device such as cpu or cuda:0 for 'metrics.device', got 'gpu0' (file 'run.yaml', line "
      "1)");
  CHECK_THAT(refusal("{type: binary, scores: logit}"), ContainsSubstring("'logit'"));
  CHECK(refusal("{type: regression, scores: logits}") ==
        "[metrics.build] expected no scores for regression metrics, got one");
  CHECK(refusal("{num_classes: 3}") ==
        "[metrics.build] expected a type with num_classes, got none; set metrics.type to one of binary, multiclass, "
        "multilabel, regression");
  CHECK_THAT(refusal("{mode: stream}"), ContainsSubstring("expected a type with mode, got none"));
  CHECK_THAT(refusal("{ignore_index: null}"), ContainsSubstring("expected a type with ignore_index, got none"));
  CHECK(refusal("{type: multiclass, num_classes: 3, top_k: []}") ==
        "[metrics.build] expected top_k with at least one number, got []");
  CHECK(refusal("{type: multiclass}") == "[metrics.build] expected num_classes for multiclass metrics, got none");
}

class UnmeasuredRunner : public TinyRunner {
 public:
  explicit UnmeasuredRunner(const TinyConfig& config) : TinyRunner(config) { metrics = nullptr; }
};

TEST_CASE("TorchRunner: metrics of the config replace those of the program", "[runner]") {
  const Folder folder;
  const auto columns = [&](auto runner) {
    runner->train();
    const dl::Result& row = std::get<dl::Result>(*runner->results().rows().back().result.find("val"));
    std::string out;
    for (const auto& [name, value] : row) {
      out += name + " ";
    }
    return out;
  };
  TinyConfig config(folder);
  config.epochs = 1;
  config.lineage = "none";
  CHECK(columns(std::make_unique<UnmeasuredRunner>(config)) == "loss ");
  config.lineage = "config";
  config.metrics.type = "multiclass";
  config.metrics.num_classes = 3;
  config.metrics.metrics = {"f1", "auroc"};
  CHECK(columns(std::make_unique<UnmeasuredRunner>(config)) == "loss f1 auroc ");
  config.lineage = "both";
  CHECK(columns(std::make_unique<TinyRunner>(config)) == "loss f1 auroc ");
  config.lineage = "program";
  config.metrics = {};
  CHECK(columns(std::make_unique<TinyRunner>(config)) == "loss acc ");
}

TEST_CASE("TorchRunner: metrics of the config take no part in the id", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  const std::string before = dl::canonical_yaml(config);
  config.metrics.type = "binary";
  CHECK(dl::canonical_yaml(config) == before);
}

TEST_CASE("TorchRunner: a run resumes within an epoch with other metrics", "[runner]") {
  const Folder folder;
  TinyConfig config(folder);
  config.epochs = 1;
  config.auto_resume = true;
  {
    TinyRunner runner(config);
    train_until(runner, 2);
  }
  config.metrics.type = "multiclass";
  config.metrics.num_classes = 3;
  config.metrics.metrics = {"f1"};
  TinyRunner runner(config);
  const auto& results = runner.train();
  CHECK(results.latest()->result.number("train.f1") != nullptr);
  CHECK(results.latest()->result.number("train.acc") == nullptr);
  runner.close();
  CHECK_THAT(logs_of(runner.workspace().dir()),
             ContainsSubstring("the metrics differ from those of the checkpoint and restart in the middle of "
                               "train: [global_metrics.load_state_dict] "));
}

}  // namespace runner_test
