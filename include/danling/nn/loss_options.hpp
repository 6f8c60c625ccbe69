// Options of losses, declared once for components, configs, files and the command line.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <danling/core/text_traits.hpp>

namespace danling::inline v0 {
class Fields;
}

namespace danling::inline v0::nn {

/// `none` returns one value per target, 0 for ignored targets.
enum class Reduction { none, mean, sum };
constexpr auto names_of(Reduction) { return std::to_array<std::string_view>({"none", "mean", "sum"}); }

/// Unset options use the default of the loss. A loss refuses options that it does not have.
struct LossOptions {
  std::optional<Reduction> reduction = std::nullopt;        ///< mean
  std::optional<std::int64_t> ignore_index = std::nullopt;  ///< -100 for classes; none for binary targets
  std::optional<double> label_smoothing = std::nullopt;     ///< 0
  std::optional<double> gamma = std::nullopt;               ///< 2
  /// Weight of the positive class; the negative class has 1 - alpha. Unset: both have weight 1.
  std::optional<double> alpha = std::nullopt;
  std::optional<std::vector<double>> class_weights = std::nullopt;

  void fields(Fields& f);
};

}  // namespace danling::inline v0::nn
