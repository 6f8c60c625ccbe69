// Options of LoRA adapters, declared once for programs, configs, files and the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace danling::inline v0 {
class Fields;
}

namespace danling::inline v0::nn {

/// Low-rank adapters of linear layers (Hu et al., 2021) under the names of PEFT's LoraConfig; unset options use its
/// defaults. No adapters without `target_modules`.
struct LoraOptions {
  /// Regular expressions (ECMAScript), searched for in the names of linear layers.
  std::optional<std::vector<std::string>> target_modules = std::nullopt;
  std::optional<std::int64_t> r = std::nullopt;       ///< rank; 8
  std::optional<double> lora_alpha = std::nullopt;    ///< 8; the adapters' scale is lora_alpha / r
  std::optional<bool> use_rslora = std::nullopt;      ///< false; true: the scale is lora_alpha / sqrt(r)
  std::optional<double> lora_dropout = std::nullopt;  ///< 0; other values require nn::LoraLinear
  std::optional<std::string> bias = std::nullopt;     ///< biases to train: none (default), all, lora_only
  /// Patterns of other parameters to train, such as a new head.
  std::optional<std::vector<std::string>> modules_to_save = std::nullopt;

  void fields(Fields& f);
};

}  // namespace danling::inline v0::nn
