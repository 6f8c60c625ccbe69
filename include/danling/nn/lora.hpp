// LoRA adapters of the linear layers of a torch::nn module.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/nn/lora_options.hpp>
#include <danling/state/state.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0::nn {

/// lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora.
double lora_scale(const LoraOptions& options);

/// Low-rank adapters of linear layers (torch::nn::Linear and nn::LoraLinear). The module keeps its code: before a
/// forward pass update() sets the member `weight` of each layer to W + scale * B A, computed by autograd, so that
/// gradients reach A and B. W stays the registered parameter, frozen. Its cost is one more weight per layer.
class LoraAdapters {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;

  struct Layer {
    std::string name;  ///< of the module; empty for the whole model
    at::Tensor base;   ///< W, [out, in]
    at::Tensor a, b;   ///< [r, in], uniform within 1 / sqrt(in); [out, r], zero: the start changes nothing
    double scale = 1.0;
    at::Tensor* weight = nullptr;  ///< the layer's member; null for LoraLinear, which has the adapter itself
  };

  /// Adds adapters to the linear layers whose names `target_modules` matches, and freezes all other parameters except
  /// those that `bias` and `modules_to_save` name. The module must outlive this. Draws from the default generator.
  /// Adapters of float16 and bfloat16 layers are float32. `section` names the options in messages.
  /// @throws ConfigError for a pattern that matches no linear layer, a tied weight, dropout outside of LoraLinear, and
  ///         a LoraLinear of another rank or scale
  LoraAdapters(torch::nn::Module& module, const LoraOptions& options, std::string_view section = "lora");

  const std::vector<Layer>& layers() const { return layers_; }
  /// A and B of the layers without adapters of their own: `fc.lora_A.weight`.
  Named named_parameters() const;
  void to(at::Device device) const;

  /// Sets the layers' weights for the next forward passes. Called when: parameters have changed; a runner does it. Any
  /// number of backward passes may follow. No device wait.
  void update() const;
  /// Sets B to zero: the layers then equal their base.
  void reset() const;

  /// Whether `weights` has the adapter of a layer.
  bool is_in(const State& weights) const;
  /// `weights` of the model, with adapters added to their base and left out.
  State merge(const State& weights) const;

  /// Saves the adapters, and the other parameters that train, in PEFT's layout: `adapter_model.safetensors` and
  /// `adapter_config.json`, for PeftModel.from_pretrained. Creates the directory. Device waits.
  /// @throws CheckpointError
  void save(const std::filesystem::path& directory) const;
  /// The same from `weights` of the model, such as those of a checkpoint.
  void save(const std::filesystem::path& directory, const State& weights) const;
  /// Loads what save() or PEFT's save_pretrained wrote, and calls update().
  /// @throws CheckpointError for other layers, another rank or scale, or a kind of adapter that is not LoRA's first
  ///         form; nothing is changed then
  void load(const std::filesystem::path& directory) const;

 private:
  void add_layers(torch::nn::Module& module);
  void freeze_rest(torch::nn::Module& module);
  /// All that save() writes, by PEFT's names.
  Named files_content() const;

  LoraOptions options_;
  std::string section_;
  std::vector<Layer> layers_;
  Named trained_;                     // other parameters that train
  std::vector<std::string> modules_;  // those of modules_to_save
};

}  // namespace danling::inline v0::nn
