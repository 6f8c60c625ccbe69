// Saves and loads adapters in PEFT's layout.
#include <algorithm>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include <danling/checkpoint/pretrained.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/core/error.hpp>
#include <danling/formats/file.hpp>
#include <danling/nn/lora.hpp>

#include <nn/adapter_names.hpp>

namespace danling::inline v0::nn {
namespace {

using Json = nlohmann::ordered_json;
constexpr auto config_name = "adapter_config.json";
constexpr auto weights_name = "adapter_model.safetensors";
constexpr auto peft_prefix = "base_model.model.";

Json read_config(const std::filesystem::path& path) {
  Json out = Json::parse(formats::InputFile(path).text(), /*callback=*/nullptr, /*allow_exceptions=*/false);
  check<CheckpointError>(out.is_object(), "nn.lora.load", "expected a JSON object in file ", quote(path.string()),
                         ", got ", out.is_discarded() ? "invalid JSON" : out.type_name());
  return out;
}

void expect(const Json& config, const char* key, const Json& expected, const std::filesystem::path& path) {
  const Json got = config.value(key, expected);
  check<CheckpointError>(got == expected, "nn.lora.load", "expected ", key, " ", expected.dump(), " in file ",
                         quote(path.string()), ", got ", got.dump());
}

}  // namespace

LoraAdapters::Named LoraAdapters::files_content() const {
  Named out;
  std::set<std::string> adapted;
  for (const Layer& layer : layers_) {
    out.emplace_back(concat(peft_prefix, name_inside(layer.name, "lora_A.weight")), layer.a);
    out.emplace_back(concat(peft_prefix, name_inside(layer.name, "lora_B.weight")), layer.b);
    adapted.insert(name_inside(layer.name, "bias"));
  }
  for (const auto& [name, parameter] : trained_) {
    // PEFT moves an adapted layer into a member of its wrapper.
    const bool inside = adapted.contains(name);
    out.emplace_back(
        concat(peft_prefix, inside ? name.substr(0, name.size() - 4) : name, inside ? "base_layer.bias" : ""),
        parameter);
  }
  return out;
}

void LoraAdapters::save(const std::filesystem::path& directory) const {
  State weights = State::Map();
  for (const auto& [name, tensor] : files_content()) {
    weights[name] = tensor.detach();
  }
  Json targets = Json::array();
  for (const Layer& layer : layers_) {
    targets.push_back(layer.name);
  }
  const Json config = {{"base_model_name_or_path", nullptr},
                       {"bias", options_.bias.value_or("none")},
                       {"fan_in_fan_out", false},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"lora_alpha", options_.lora_alpha.value_or(8.0)},
                       {"lora_dropout", options_.lora_dropout.value_or(0.0)},
                       {"modules_to_save", modules_.empty() ? Json() : Json(modules_)},
                       {"peft_type", "LORA"},
                       {"r", options_.r.value_or(8)},
                       {"target_modules", targets},
                       {"task_type", nullptr},
                       {"use_dora", false},
                       {"use_rslora", options_.use_rslora.value_or(false)}};
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  check<CheckpointError>(!error, "nn.lora.save", "expected to create directory ", quote(directory.string()), ", got ",
                         error.message());
  formats::remove_stale_temporaries(directory);  // left by a process that died here
  save_safetensors(weights, directory / weights_name);
  formats::replace_file(directory / config_name, config.dump(2) + "\n");
}

void LoraAdapters::save(const std::filesystem::path& directory, const State& weights) const {
  LoraAdapters other = *this;
  const auto replace = [&](at::Tensor& tensor, const std::string& name) {
    if (const State* found = weights.find(name)) {
      tensor = found->tensor();
    }
  };
  for (Layer& layer : other.layers_) {
    replace(layer.a, name_inside(layer.name, "lora_A.weight"));
    replace(layer.b, name_inside(layer.name, "lora_B.weight"));
  }
  for (auto& [name, tensor] : other.trained_) {
    replace(tensor, name);
  }
  other.save(directory);
}

void LoraAdapters::load(const std::filesystem::path& directory) const {
  const auto path = directory / config_name;
  const Json config = read_config(path);
  expect(config, "peft_type", "LORA", path);
  expect(config, "r", options_.r.value_or(8), path);
  expect(config, "lora_alpha", options_.lora_alpha.value_or(8.0), path);
  expect(config, "use_rslora", options_.use_rslora.value_or(false), path);
  for (const char* key : {"use_dora", "fan_in_fan_out", "lora_bias", "use_qalora"}) {
    expect(config, key, false, path);
  }
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    expect(config, key, Json::object(), path);
  }
  State own = State::Map();
  for (const auto& [name, tensor] : files_content()) {
    own[name] = tensor.detach();
  }
  const auto file = directory / weights_name;
  State given = State::Map();
  for (const auto& [key, value] : load_safetensors(file).map()) {
    // With bias "all", PEFT writes the biases of modules_to_save again under the names of its wrapper.
    const std::string& name = key.string();
    if (name.find(".modules_to_save.") == std::string::npos && name.find(".original_module.") == std::string::npos) {
      given[name] = value;
    }
  }
  const WeightMatch match = compare_weights(own, given);
  check<CheckpointError>(match.complete(), "nn.lora.load", "expected the adapters of this model in file ",
                         quote(file.string()), ", got ", match.mismatch_summary());
  copy_weights(own, match.weights);
  update();
}

}  // namespace danling::inline v0::nn
