#include <danling/metrics/spec.hpp>

#include <c10/util/Exception.h>

#include <danling/config/fields.hpp>

namespace danling::inline v0 {

std::string TextTraits<at::Device>::format(const at::Device& device) { return device.str(); }

std::optional<at::Device> TextTraits<at::Device>::parse(const std::string& name) {
  try {
    return at::Device(name);
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

void metrics::MetricsSpec::fields(Fields& f) {
  f("type", type, "binary, multiclass, multilabel, regression, or one that the program registered; unset builds none");
  f("num_classes", num_classes, "classes (multiclass)").at_least(1);
  f("num_labels", num_labels, "labels (multilabel); also accepted as num_classes and num_outputs").at_least(1);
  f("num_outputs", num_outputs, "outputs (regression); unset: 1").at_least(1);
  f("mode", mode, "global: exact values over all data; stream: averages of batch values");
  f("metrics", metrics, "names: acc, auroc, f1, ...; empty: the defaults of the type");
  f("average", average, "over classes or labels; unset: macro");
  f("top_k", top_k, "a target counts as predicted if it is among the k highest scores; one metric per k; unset: 1")
      .at_least(1);
  f("threshold", threshold, "probability above which a label is predicted; unset: 0.5").range(0, 1);
  f("ignore_index", ignore_index, "ignore targets of this value");
  f("class_dim", class_dim, "dimension of the classes; unset: found from the shapes");
  f("scores", scores, "type of the predictions; detect: logits if the batch has a score outside [0, 1]");
  f("beta", beta, "of fbeta; unset: 1").above(0);
  f("thresholds", thresholds, "of auroc, auprc, roc and precision_recall_curve; unset: exact").at_least(2);
  f("ignore_nan", ignore_nan, "ignore nan targets (regression); unset: true");
  f("device", device, "device that stores predictions (global): cpu, cuda, ...; unset: that of the predictions");
}

}  // namespace danling::inline v0
