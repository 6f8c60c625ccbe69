// Weights alone, from the checkpoint of another run or from any file.
#include <danling/runner/pretrained.hpp>

#include <utility>

#include <danling/checkpoint/weights.hpp>
#include <danling/config/tree.hpp>
#include <danling/telemetry/logger.hpp>

namespace danling::inline v0 {

WeightMatch BaseRunner::load_pretrained(const std::filesystem::path& path, const PretrainedOptions& options) {
  initialize_unless_initializing();
  return restore_weights(read_checkpoint(path), options, path);
}

WeightMatch BaseRunner::restore_weights(const State& checkpoint, const PretrainedOptions& options,
                                        const std::filesystem::path& path) {
  initialize_unless_initializing();
  const std::string origin = path.empty() ? "the checkpoint" : concat("file ", quote(path.string()));
  const State own = model_state_dict().at("model");
  WeightMatch match = match_weights(own, checkpoint, options, origin);
  // The model gets all of its names: its own values where there are no others.
  State weights = own;
  for (const auto& [name, value] : match.weights.map()) {
    weights[name] = value;
  }
  load_model(weights);
  logger().info(concat("loaded the weights of ", path.empty() ? origin : path.string(),
                       match.key.empty() ? "" : concat(", those under ", quote(match.key)), ": ", match.loaded.size(),
                       " of ", own.map().size(), " entries",
                       match.prefix.empty() ? "" : concat(", without ", quote(match.prefix), " in front")));
  for (const auto& line : match.lines()) {
    logger().warning(concat("runner.load_pretrained: ", line));
  }
  return match;
}

namespace detail {

State read_run(const std::filesystem::path& path) { return load_weights(path); }

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
                          join(keys), "]; build the runner by from_pretrained for weights alone");
  }
  from_tree(config, convert_tree<ConfigTree>(*stored), concat("config in ", origin));
  start_afresh(config);
}

void start_afresh(RunnerConfig& config) {
  config.resume.reset();
  config.auto_resume = false;
  config.pretrained.reset();
}

}  // namespace detail
}  // namespace danling::inline v0
