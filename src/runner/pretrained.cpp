// Loads only weights, from the checkpoint of another run or from any file.
#include <danling/runner/pretrained.hpp>

#include <algorithm>
#include <utility>

#include <danling/checkpoint/weights.hpp>
#include <danling/config/tree.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/deepspeed_pointers.hpp>
#include <runner/restorer.hpp>

namespace danling::inline v0 {

namespace {

// Fills names missing in the file with the model's current values.
State fill_missing(State own, const State& loaded) {
  for (const auto& [name, value] : loaded.map()) {
    own[name] = value;
  }
  return own;
}

bool has_adapters(const State& weights) {
  return weights.is_map() && std::any_of(weights.map().begin(), weights.map().end(), [](const auto& entry) {
           return has_adapters(entry.value) ||
                  (entry.value.is_tensor() && entry.key.is_string() && entry.key.string().ends_with("lora_A.weight"));
         });
}

}  // namespace

WeightMatch BaseRunner::load_pretrained(const std::filesystem::path& path, const PretrainedOptions& options) {
  Internals::Restorer(*this).initialize();
  return Internals::Restorer(*this).restore_weights(read_checkpoint(path), options, path);
}

WeightMatch BaseRunner::restore_weights(const State& checkpoint, const PretrainedOptions& options) {
  return Internals::Restorer(*this).restore_weights(checkpoint, options);
}

WeightMatch BaseRunner::Internals::Restorer::restore_weights(const State& checkpoint, const PretrainedOptions& options,
                                                             const std::filesystem::path& path) {
  initialize();
  const std::string origin = path.empty() ? "the checkpoint" : concat("file ", quote(path.string()));
  check<ConfigError>(runner_.parallelism().can_gather_full_state(), "runner.load_pretrained",
                     "expected whole models, got slices or stages of parallel.axes; load the weights into the model in "
                     "the runner's constructor: danling::load_weights");
  const auto exposed = runner_.gather_full_state(/*writes=*/true);
  const State present = runner_.model_state_dict();
  // Weights without adapters belong to a model without adapters.
  const State exported = has_adapters(checkpoint) ? present : runner_.exported_state_dict(present);
  if (exported.find("models") != nullptr &&
      (exported.find("model") == nullptr || checkpoint.find("models") != nullptr)) {
    return restore_weights_of_models(exported, checkpoint, options, origin);
  }
  const State own = exported.at("model");
  WeightMatch match = match_weights(own, checkpoint, options, origin);
  runner_.load_model(fill_missing(own, match.weights));
  runner_.logger().info(concat("loaded the weights of ", path.empty() ? origin : path.string(),
                               match.key.empty() ? "" : concat(", those under ", quote(match.key)), ": ",
                               match.loaded.size(), " of ", own.map().size(), " entries",
                               match.skipped.empty() ? "" : concat(", ", match.skipped.size(), " skipped"),
                               match.prefix.empty() ? "" : concat(", without the prefix ", quote(match.prefix))));
  for (const auto& line : match.lines()) {
    runner_.logger().warning(concat("runner.load_pretrained: ", line));
  }
  return match;
}

namespace {

// The average of a model's weights if the file has one, as in DanLing, else the weights.
const State* preferred_weights(const State& part) {
  for (const char* key : {"ema", "swa", "model"}) {
    const State* weights = part.is_map() ? part.find(key) : nullptr;
    if (weights != nullptr && weights->is_map()) {
      return weights;
    }
  }
  return nullptr;
}

// Converts {model: {"model": weights}} to one map, with the names of models as prefixes.
State flattened(const State& models, bool averages) {
  State out = State::Map();
  for (const auto& model : models.map()) {
    const State* weights = averages               ? preferred_weights(model.value)
                           : model.value.is_map() ? model.value.find("model")
                                                  : nullptr;
    if (weights != nullptr && weights->is_map()) {
      for (const auto& entry : weights->map()) {
        out[concat(model.key.string(), ".", entry.key.string())] = entry.value;
      }
    }
  }
  return out;
}

}  // namespace

WeightMatch BaseRunner::Internals::Restorer::restore_weights_of_models(const State& exported, const State& checkpoint,
                                                                       const PretrainedOptions& options,
                                                                       const std::string& origin) {
  const State* saved = checkpoint.is_map() ? checkpoint.find("models") : nullptr;
  check<CheckpointError>(saved != nullptr && saved->is_map(), "runner.load_pretrained",
                         "expected the weights of several "
                         "models under 'models' in ",
                         origin, ", got none");
  const State own = flattened(exported.at("models"), /*averages=*/false);
  WeightMatch match = match_weights(own, flattened(*saved, /*averages=*/true), options, origin);
  const State* main = exported.find("model");
  State main_weights;
  if (const State* given = preferred_weights(checkpoint); main != nullptr && given != nullptr) {
    const WeightMatch other = match_weights(*main, *given, options, origin);
    main_weights = fill_missing(*main, other.weights);
    const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    append(match.loaded, other.loaded);
    append(match.missing, other.missing);
    append(match.unexpected, other.unexpected);
    append(match.shape_mismatches, other.shape_mismatches);
  }
  for (const auto& model : exported.at("models").map()) {
    const std::string& name = model.key.string();
    State weights = State::Map();
    for (const auto& entry : model.value.at("model").map()) {
      const std::string full = concat(name, ".", entry.key.string());
      const State* loaded = match.weights.find(full);
      weights[entry.key.string()] = loaded != nullptr ? *loaded : entry.value;
    }
    runner_.load_named_model(name, weights);
  }
  if (!main_weights.is_null()) {
    runner_.load_model(main_weights);
  }
  runner_.logger().info(concat("loaded the weights of ", exported.at("models").map().size(), " models from ", origin));
  for (const auto& line : match.lines()) {
    runner_.logger().warning(concat("runner.load_pretrained: ", line));
  }
  return match;
}

namespace detail {

State read_run(const std::filesystem::path& path) { return load_weights(tagged_state_file(path)); }

void read_config(RunnerConfig& config, const State& checkpoint, const std::filesystem::path& path) {
  constexpr auto where = "runner.read_config";
  const std::string origin = path.empty() ? "the checkpoint" : concat("file ", quote(path.string()));
  check<CheckpointError>(checkpoint.is_map(), where, "expected a checkpoint of a run in ", origin, ", got ",
                         checkpoint.kind());
  const State* stored = checkpoint.find("runner");
  if (stored == nullptr || !stored->is_map()) {
    std::vector<std::string> keys;
    for (const auto& entry : checkpoint.map()) {
      keys.push_back(entry.key.is_string() ? entry.key.string() : entry.key.text());
    }
    fail<CheckpointError>(where, "expected the config of a run under 'runner' in ", origin, ", got the keys [",
                          join(keys), "]; use from_pretrained to load only weights");
  }
  from_tree(config, convert_tree<ConfigTree>(*stored), concat("config in ", origin));
  start_afresh(config);
}

void start_afresh(RunnerConfig& config) {
  config.resume.reset();
  config.auto_resume = false;
  config.pretrained.reset();
  config.pretrained_key.reset();
  config.pretrained_rename.clear();
  config.pretrained_skip.reset();
}

}  // namespace detail
}  // namespace danling::inline v0
