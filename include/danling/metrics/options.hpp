// Options that metrics of one task share.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace danling::inline v0::metrics {

enum class Task { binary, multiclass, multilabel, regression };

/// Reduction of values by class, or by label.
enum class Average {
  micro,     ///< over all decisions equally
  macro,     ///< the mean over classes
  weighted,  ///< the mean over classes, weighted by their targets
  none       ///< one value per class
};

/// Type of predicted scores.
enum class Scores {
  /// Logits if a counted score lies outside [0, 1], nan aside, else probabilities: DanLing's rule. Decided separately
  /// for each batch on each rank: a batch of logits that all lie within [0, 1] is taken for probabilities.
  detect,
  logits,
  /// Used unchanged. Scores outside [0, 1] are an error on the host; on a device they are clamped to [0, 1].
  probabilities
};

std::string_view to_string(Task task);
std::string_view to_string(Average average);
std::string_view to_string(Scores scores);
/// @throws ConfigError that lists the names.
Task parse_task(std::string_view name);
Average parse_average(std::string_view name);
Scores parse_scores(std::string_view name);

struct BinaryOptions {
  /// Probabilities above it predict the label 1.
  double threshold = 0.5;
  /// Targets of this value are ignored.
  std::optional<std::int64_t> ignore_index = -100;
};

struct MulticlassOptions {
  Average average = Average::macro;
  /// A target counts as predicted when it is among the `top_k` highest scores.
  std::int64_t top_k = 1;
  std::optional<std::int64_t> ignore_index = -100;
};

struct MultilabelOptions {
  Average average = Average::macro;
  double threshold = 0.5;
  std::optional<std::int64_t> ignore_index = -100;
};

/// For functions that take predictions of any task: with `num_classes` multiclass, with `num_labels` multilabel, else
/// binary.
struct ClassificationOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;
  std::optional<std::int64_t> num_labels = std::nullopt;
  double threshold = 0.5;
  Average average = Average::macro;
  std::int64_t top_k = 1;
  std::optional<std::int64_t> ignore_index = -100;
  /// Dimension of the classes in the prediction; found from the shapes when absent.
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
};

/// @throws MetricError when both numbers are given.
Task task_of(const ClassificationOptions& options);

}  // namespace danling::inline v0::metrics
