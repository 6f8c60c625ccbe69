// The options of LoRA adapters, declared once: programs, configs, files and the command line share them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace danling::inline v0 {
class Fields;
}

namespace danling::inline v0::nn {

/// Low-rank adapters of linear layers (Hu et al., 2021) under the names of PEFT's LoraConfig; unset options keep its
/// defaults. Without `target_modules`, none.
struct LoraOptions {
  /// Regular expressions (ECMAScript), each searched for anywhere in the names of linear layers.
  std::optional<std::vector<std::string>> target_modules = std::nullopt;
  std::optional<std::int64_t> r = std::nullopt;       ///< rank; 8
  std::optional<double> lora_alpha = std::nullopt;    ///< 8; the product of the adapter is multiplied by lora_alpha / r
  std::optional<bool> use_rslora = std::nullopt;      ///< multiplies by lora_alpha / sqrt(r) instead; false
  std::optional<double> lora_dropout = std::nullopt;  ///< 0. Others are refused: only nn::LoraLinear has it
  std::optional<std::string> bias = std::nullopt;     ///< biases that train too: none, all, lora_only; none
  /// Patterns of further parameters that train, such as a new head.
  std::optional<std::vector<std::string>> modules_to_save = std::nullopt;

  void fields(Fields& f);
};

}  // namespace danling::inline v0::nn
