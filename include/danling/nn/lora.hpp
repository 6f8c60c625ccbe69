// LoRA adapters for the linear layers of a torch::nn module.
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

/// Low-rank adapters of linear layers (torch::nn::Linear and nn::LoraLinear). The module's code does not change: before
/// a forward pass, update() sets the member `weight` of each layer to W + scale * B A, computed by autograd, so that
/// gradients reach A and B. W stays the registered parameter, frozen. Costs one additional weight per layer.
class LoraAdapters {
 public:
  using Named = std::vector<std::pair<std::string, at::Tensor>>;

  struct Layer {
    std::string name;  ///< name of the layer; empty for the whole model
    at::Tensor base;   ///< W, [out, in]
    at::Tensor a, b;   ///< [r, in], uniform within 1 / sqrt(in); [out, r], zeros: the initial adapter changes nothing
    double scale = 1.0;
    at::Tensor* weight = nullptr;  ///< the layer's member; null for LoraLinear, which contains the adapter
  };

  /// Adds adapters to the linear layers whose names `target_modules` matches, and freezes all other parameters except
  /// those that `bias` and `modules_to_save` select. The module must outlive this object. Draws from the default
  /// generator. Adapters of float16 and bfloat16 layers are float32. `section` names the options in messages.
  /// @throws ConfigError for a pattern that matches no linear layer, a tied weight, dropout outside LoraLinear, and a
  ///         LoraLinear with another rank or scale
  LoraAdapters(torch::nn::Module& module, const LoraOptions& options, std::string_view section = "lora");

  const std::vector<Layer>& layers() const { return layers_; }
  /// A and B of the layers, except LoraLinear's: `fc.lora_A.weight`.
  Named named_parameters() const;
  void to(at::Device device) const;

  /// Sets the layers' weights for the next forward passes. Call it after parameters change; a runner does. Any number
  /// of backward passes may follow. Does not wait for the device.
  void update() const;
  /// Sets B to zero: the layers then equal their base.
  void reset() const;

  /// Returns whether `weights` contains the adapter of a layer.
  bool is_in(const State& weights) const;
  /// Returns the model's `weights` with the adapters merged into their base weights.
  State merge(const State& weights) const;

  /// Saves the adapters and the other trained parameters in PEFT's layout: `adapter_model.safetensors` and
  /// `adapter_config.json`, for PeftModel.from_pretrained. Creates the directory. Waits for devices.
  /// @throws CheckpointError
  void save(const std::filesystem::path& directory) const;
  /// The same, from `weights` of the model, such as those of a checkpoint.
  void save(const std::filesystem::path& directory, const State& weights) const;
  /// Loads files of save() or of PEFT's save_pretrained, and calls update().
  /// @throws CheckpointError, changing nothing, for other layers, another rank or scale, or an adapter type other than
  ///         plain LoRA
  void load(const std::filesystem::path& directory) const;

 private:
  void add_layers(torch::nn::Module& module);
  void freeze_rest(torch::nn::Module& module);
  /// All parameters that save() writes, under PEFT's names.
  Named files_content() const;

  LoraOptions options_;
  std::string section_;
  std::vector<Layer> layers_;
  Named trained_;                     // other trained parameters
  std::vector<std::string> modules_;  // modules of modules_to_save
};

}  // namespace danling::inline v0::nn
