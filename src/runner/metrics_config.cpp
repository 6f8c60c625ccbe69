// Metrics of a runner, or of any program, from their config.
#include <danling/runner/metrics_config.hpp>

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <danling/config/tree.hpp>
#include <danling/core/error.hpp>
#include <danling/metrics/build.hpp>
#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

void MetricsConfig::fields(Fields& f) {
  f("type", type, "binary, multiclass, multilabel, regression, or one that the program registered; unset builds none");
  f("num_classes", num_classes, "classes (multiclass)").at_least(1);
  f("num_labels", num_labels, "labels (multilabel); also taken for num_classes and num_outputs").at_least(1);
  f("num_outputs", num_outputs, "outputs (regression); unset: 1").at_least(1);
  f("mode", mode, "global: exact values of all data; stream: averages of the batches' values")
      .choices({"global", "stream"});
  f("metrics", metrics, "names: acc, auroc, f1, ...; empty: the defaults of the type");
  f("average", average, "over classes or labels; unset: macro").choices({"micro", "macro", "weighted", "none"});
  f("top_k", top_k, "numbers of highest scores among which a target counts as predicted, one metric each; unset: 1")
      .at_least(1);
  f("threshold", threshold, "probability above which a label is predicted; unset: 0.5").range(0, 1);
  f("ignore_index", ignore_index, "targets of this value do not count");
  f("class_dim", class_dim, "dimension of the classes; unset: found from the shapes");
  f("scores", scores, "what predictions are; detect: logits where a batch has one outside [0, 1]")
      .choices({"detect", "logits", "probabilities"});
  f("beta", beta, "of fbeta, above 0; unset: 1").at_least(0);
  f("thresholds", thresholds, "of auroc, auprc, roc and precision_recall_curve, at least 2; unset: exact").at_least(2);
  f("ignore_nan", ignore_nan, "targets that are nan do not count (regression); unset: true");
  f("device", device, "where predictions are kept (global): cpu, cuda, ...; unset: where they are");
}

namespace metrics {
namespace {

std::optional<at::Device> to_device(const std::optional<std::string>& name) {
  if (!name) {
    return std::nullopt;
  }
  try {
    return at::Device(*name);
  } catch (const c10::Error&) {
    fail<ConfigError>("metrics.build", "expected a device such as cpu or cuda:0 for 'device', got ", quote(*name));
  }
}

// Without a type nothing would read them.
void expect_no_settings(const MetricsConfig& config) {
  const ConfigTree set = changed(to_tree(config), to_tree(MetricsConfig()));
  for (const auto& entry : set.map()) {
    fail<ConfigError>("metrics.build", "expected a type beside ", entry.key.string(),
                      ", got none; set metrics.type to one of ", join(factories().names()));
  }
}

}  // namespace

std::shared_ptr<Metrics> build(const MetricsConfig& config) {
  if (!config.type) {
    expect_no_settings(config);
    return nullptr;
  }
  return build(MetricsSpec{.type = *config.type,
                           .num_classes = config.num_classes,
                           .num_labels = config.num_labels,
                           .num_outputs = config.num_outputs,
                           .mode = parse_mode(config.mode),
                           .average = config.average ? std::optional(parse_average(*config.average)) : std::nullopt,
                           .top_k = config.top_k,
                           .threshold = config.threshold,
                           .ignore_index = config.ignore_index,
                           .class_dim = config.class_dim,
                           .scores = parse_scores(config.scores),
                           .beta = config.beta,
                           .thresholds = config.thresholds,
                           .ignore_nan = config.ignore_nan,
                           .device = to_device(config.device),
                           .metrics = config.metrics});
}

}  // namespace metrics

void TorchRunnerBase::build_metrics() {
  if (auto configured = danling::metrics::build(config().metrics)) {
    metrics = std::move(configured);
    train_metrics = nullptr;
    evaluate_metrics = nullptr;
  }
}

}  // namespace danling::inline v0
