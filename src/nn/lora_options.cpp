#include <danling/nn/lora_options.hpp>

#include <danling/config/fields.hpp>

namespace danling::inline v0::nn {

void LoraOptions::fields(Fields& f) {
  f("target_modules", target_modules,
    "linear layers that get adapters: regular expressions searched for in their names; unset: none");
  f("r", r, "rank of the adapters; unset: 8").at_least(1);
  f("lora_alpha", lora_alpha, "the adapters' scale is lora_alpha / r; unset: 8").above(0);
  f("use_rslora", use_rslora, "divide lora_alpha by the square root of r; unset: false");
  f("lora_dropout", lora_dropout, "dropout of the adapters' input; only 0, except in a program's nn::LoraLinear")
      .range(0, 1);
  f("bias", bias, "biases that train too; unset: none").choices({"none", "all", "lora_only"});
  f("modules_to_save", modules_to_save, "patterns of other parameters to train, such as a new head");
}

}  // namespace danling::inline v0::nn
