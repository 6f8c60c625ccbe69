// Options that metrics of one task share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include <danling/core/text_traits.hpp>

namespace danling::inline v0::metrics {

enum class Mode {
  global,  ///< GlobalMetrics: of all data, exactly
  stream   ///< StreamMetrics: the average of the batches' values
};

enum class Task { binary, multiclass, multilabel, regression };

/// Reduction of values over classes or labels.
enum class Average {
  micro,     ///< over all decisions, with equal weights
  macro,     ///< the mean over classes
  weighted,  ///< the mean over classes, weighted by their number of targets
  none       ///< one value per class
};

/// Type of predicted scores.
enum class Scores {
  /// Logits if any counted score, nan excluded, lies outside [0, 1], else probabilities: DanLing's rule. Applied to
  /// each batch on each rank separately: a batch of logits that are all within [0, 1] counts as probabilities.
  detect,
  logits,
  /// Used unchanged. Scores outside [0, 1] are an error on the host; a device clamps them to [0, 1].
  probabilities
};

constexpr auto names_of(Mode) { return std::to_array<std::string_view>({"global", "stream"}); }
constexpr auto names_of(Task) {
  return std::to_array<std::string_view>({"binary", "multiclass", "multilabel", "regression"});
}
constexpr auto names_of(Average) { return std::to_array<std::string_view>({"micro", "macro", "weighted", "none"}); }
constexpr auto names_of(Scores) { return std::to_array<std::string_view>({"detect", "logits", "probabilities"}); }

/// The name of a value of these enums.
template <class E>
  requires requires(E value) { names_of(value); }
std::string_view to_string(E value) {
  return TextTraits<E>::format(value);
}

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

/// For functions that take predictions of any task: multiclass with `num_classes`, multilabel with `num_labels`, else
/// binary.
struct ClassificationOptions {
  std::optional<std::int64_t> num_classes = std::nullopt;
  std::optional<std::int64_t> num_labels = std::nullopt;
  double threshold = 0.5;
  Average average = Average::macro;
  std::int64_t top_k = 1;
  std::optional<std::int64_t> ignore_index = -100;
  /// Dimension of the classes in the prediction; found from the shapes when absent. If several fit, dimension 1: set it
  /// for [N, L, classes] where L may equal the number of classes.
  std::optional<std::int64_t> class_dim = std::nullopt;
  Scores scores = Scores::detect;
};

/// @throws MetricError when both numbers are given.
Task task_of(const ClassificationOptions& options);

}  // namespace danling::inline v0::metrics
