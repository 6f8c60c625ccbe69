// Restoring a run: what a checkpoint holds, where a run restores from, what must agree.
#include <danling/runner/base_runner.hpp>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include <danling/checkpoint/file.hpp>
#include <danling/checkpoint/file_manager.hpp>
#include <danling/checkpoint/weights.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/suggest.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/workspace/files.hpp>

#include "runner/record.hpp"
#include "runner/services.hpp"

namespace danling::inline v0 {
namespace {

constexpr auto where = "runner.load_checkpoint";
constexpr std::string_view kIndex = "\n    \"index\": ";                   // of the result in latest.json and best.json
constexpr std::string_view kUnsavedBest = "\n        \"unsaved_best\": ";  // in the details of summary.json

// DanLing's other names of parts replaced: "dataloader.train" is "dataloaders.train".
std::string part_name(std::string_view text) {
  const auto dot = std::min(text.find('.'), text.size());
  const std::string_view first = text.substr(0, dot);
  const std::string_view known = first == "data_loader" || first == "dataloader" ? "dataloaders"
                                 : first == "lr_scheduler"                       ? "scheduler"
                                                                                 : first;
  return concat(known, text.substr(dot));
}

// Takes out what `path` names, keys joined by dots; keys may have dots of their own. Says whether it was there.
bool drop(State& state, std::string_view path) {
  if (!state.is_map()) {
    return false;
  }
  if (state.map().erase(path)) {
    return true;
  }
  for (auto dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', dot + 1)) {
    State* child = state.map().find(path.substr(0, dot));
    if (child != nullptr && drop(*child, path.substr(dot + 1))) {
      return true;
    }
  }
  return false;
}

// Only the last save of a run writes `latest` so.
bool holds_model_alone(FileCheckpointManager& manager) {
  try {
    const State state = manager.load_checkpoint(manager.path_of("latest"));
    return state.find("state") == nullptr && state.find("model") != nullptr;
  } catch (const CheckpointError&) {
    return false;
  }
}

// The number that follows the last `mark` in a file of the run. One that someone spoilt counts as absent.
std::optional<std::int64_t> number_in(Logger& logger, const std::filesystem::path& file, std::string_view mark) {
  std::error_code missing;
  if (!std::filesystem::exists(file, missing)) {
    return std::nullopt;
  }
  const std::string text = read_text(file);
  const auto at = text.rfind(mark);
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const auto rest = std::string_view(text).substr(at + mark.size());
  std::int64_t out = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), out).ec != std::errc()) {
    const auto key = mark.substr(mark.find('"') + 1);
    logger.warning(concat(
        "auto_resume: expected in ", file.string(), " a number of ", quote(key.substr(0, key.find('"'))), ", got ",
        quote(rest.substr(0, std::min(rest.find_first_of(",\n"), std::size_t{40}))), "; goes on without it"));
    return std::nullopt;
  }
  return out;
}

// Whether the last start that ended said that the run was finished.
bool says_finished(const std::filesystem::path& run) {
  const auto file = run / "summary.json";
  std::error_code missing;
  return std::filesystem::exists(file, missing) &&
         read_text(file).find("\n    \"status\": \"finished\"") != std::string::npos;
}

// Lines of metrics that were not in the file yet when the checkpoint was taken.
std::string waiting_metrics(const State& checkpoint) {
  const State* text = checkpoint.find("metrics_waiting");
  return text != nullptr ? text->string() : std::string();
}

}  // namespace

// Whether the run in this directory, which ended, has done what the config asks for; one whose boundary was moved has
// not.
bool BaseRunner::is_done(const std::filesystem::path& run) const {
  auto& logger = services_->logger;
  auto done = says_finished(run)
                  ? number_in(logger, run / "summary.json", epochs() ? "\n    \"epoch\": " : "\n    \"global_step\": ")
                  : std::nullopt;
  if (!done) {
    done = number_in(logger, run / "latest.json", kIndex);
    if (!done) {
      return true;
    }
    *done += epochs() ? 1 : 0;
  }
  if (!epochs()) {
    return *done >= config().steps.value_or(0);
  }
  const auto without_best = *done - 1 - number_in(logger, run / "best.json", kIndex).value_or(-1);
  return *done >= *epochs() || (without_best > 0 && static_cast<double>(without_best) >= config().patience);
}

// Whether nothing is left to do in this directory: its last save kept the model alone, and what followed it was done
// too. A best state that only the last epoch can give anew is left.
bool BaseRunner::is_complete(const std::filesystem::path& run) const {
  auto& logger = services_->logger;
  if (!says_finished(run) || !is_done(run)) {
    return false;
  }
  const auto unsaved = number_in(logger, run / "summary.json", kUnsavedBest);
  return !unsaved || unsaved != number_in(logger, run / "latest.json", kIndex);
}

std::filesystem::path BaseRunner::restore_source() {
  auto& services = *services_;
  if (config().resume.has_value() + config().auto_resume + config().pretrained.has_value() > 1) {
    services.logger.warning(
        "runner.auto_restore: more than one of resume, auto_resume and pretrained is set; resume "
        "goes before auto_resume, and auto_resume before pretrained");
  }
  std::error_code missing;
  const bool wanted = config().auto_resume && !config().resume;
  if (wanted || (config().resume && !std::filesystem::exists(*config().resume, missing))) {
    if (const auto source = services.workspace.interrupted_source(); !source.empty()) {
      services.logger.warning(
          concat("resume: an earlier start ended before it had taken over ", source.string(), "; goes on from there"));
      return std::filesystem::absolute(source);
    }
  }
  if (config().resume) {
    return std::filesystem::absolute(*config().resume);
  }
  if (config().auto_resume) {
    std::string unsound;
    for (const auto& run : find_runs(services.workspace.options())) {
      FileCheckpointManager manager({.directory = run.dir / config().checkpoint.dir_name}, {}, {});
      const auto latest = manager.path_of("latest");
      const bool own = services.workspace.holds(latest);
      if (own && is_complete(run.dir) && holds_model_alone(manager)) {
        services.finished = true;
        return std::filesystem::absolute(latest);
      }
      std::optional<SoundCheckpoint> found;
      try {
        found = manager.newest_sound([](const State& state) {  // after checkpoint.last_save_model_only
          return state.find("state") != nullptr ? "" : "it holds the model alone, which is nothing to go on from";
        });
      } catch (const CheckpointError& error) {
        if (own && holds_model_alone(manager) && is_done(run.dir)) {
          services.finished = true;
          return std::filesystem::absolute(latest);
        }
        services.logger.warning(concat("auto_resume: passed over ", run.dir.string(), ": ", error.what()));
        unsound = unsound.empty() ? error.what() : unsound;
      }
      if (!found) {
        continue;
      }
      for (const auto& damaged : found->skipped) {
        services.logger.warning(concat("auto_resume: passed over ", damaged.path.string(), ": ", damaged.reason));
      }
      if (run.code_id != code_id_) {
        const auto say = [](const std::string& id) { return id.empty() ? std::string("of unknown identity") : id; };
        services.logger.warning(concat("auto_resume: the checkpoint was written by code ", say(run.code_id),
                                       ", this is code ", say(code_id_)));
      }
      services.restore_state = std::move(found->state);
      return std::filesystem::absolute(found->path);
    }
    check<CheckpointError>(unsound.empty(), "runner.auto_resume", "expected a checkpoint to go on from, got none that ",
                           "is sound; move the run's directory away to start afresh: ", unsound);
    services.logger.info(concat("auto_resume: found no checkpoint of config ", config_id_, " below ",
                                services.workspace.options().root, ", starts afresh"));
  }
  if (config().pretrained) {
    services.weights_only = true;
    return std::filesystem::absolute(*config().pretrained);
  }
  return {};
}

void BaseRunner::auto_restore() {
  auto& services = *services_;
  if (services.restore_from.empty()) {
    return;
  }
  if (services.finished) {
    load_components(services.restore_state);
    services.restore_state = State();
    // A model alone has no counters; the last line of metrics has.
    const auto metrics = services.workspace.metrics_file();
    state_.train.global_step = number_in(services.logger, metrics, ",\"global_step\":").value_or(0);
    state_.train.epoch = number_in(services.logger, metrics, ",\"epoch\":").value_or(0) + (epochs() ? 1 : 0);
    services.logger.info(
        concat("auto_resume: the run is finished, ", services.restore_from.string(), " holds its model"));
  } else if (services.weights_only) {
    load_pretrained(services.restore_state);
    services.restore_state = State();
    services.logger.info(concat("loaded the weights of ", services.restore_from.string()));
  } else {
    const State checkpoint = std::exchange(services.restore_state, State());
    load_checkpoint(checkpoint);
    if (const State* lines = checkpoint.find("metrics_lines")) {
      services.restored_lines = lines->integer();
      services.restored_waiting = waiting_metrics(checkpoint);
    }
    services.logger.info(concat("resumed ", services.restore_from.string(), " at epoch ", state_.train.epoch, ", step ",
                                state_.train.global_step));
  }
}

State BaseRunner::state_dict() {
  if (!rng_frozen_) {
    state_.rng.capture();
  }
  ConfigTree config_tree = to_tree(config());
  // How this attempt began is not part of the run that it continues.
  for (const auto* key : {"resume", "auto_resume", "pretrained"}) {
    config_tree.map().erase(key);
  }
  State out;
  out["runner"] = convert_tree<State>(config_tree);
  out["state"] = state_.state_dict();
  out["seed"] = static_cast<std::int64_t>(seed_);
  out["dataloaders"] = dataloader_state();
  out["results"] = results_.state_dict();
  out["metrics_lines"] = std::int64_t{0};
  if (services_ != nullptr && services_->metrics_log) {
    detail::save_metrics(*services_->metrics_log, out);
  }
  return out;
}

bool BaseRunner::excluded_from_loading(std::string_view key) const {
  const auto& excluded = config().checkpoint.exclude_from_loading;
  return std::any_of(excluded.begin(), excluded.end(), [&](const std::string& item) { return part_name(item) == key; });
}

void BaseRunner::check_same_meaning(const State& stored) const {
  const auto saved = config_.make();
  from_tree(*saved, convert_tree<ConfigTree>(stored), "config of the checkpoint");
  const auto found = differences(semantic_tree(*saved), semantic_tree(config()));
  if (found.empty()) {
    return;
  }
  std::string text;
  for (const auto& difference : found) {
    text += concat(text.empty() ? "" : "; ", difference.key, " is ", difference.first, " there and ", difference.second,
                   " here");
  }
  fail<ConfigError>(where, "expected a config that means the same as the checkpoint's, got one where ", text,
                    " (start a new run, align the config, or put 'runner' into checkpoint.exclude_from_loading)");
}

void BaseRunner::load_state_dict(const State& checkpoint) {
  if (const State* stored = checkpoint.find("runner")) {
    check_same_meaning(*stored);
  }
  if (const State* state = checkpoint.find("state")) {
    state_.load_state_dict(*state);
    state_.elastic.restart_count = parallelism_->identity().restart_count;
    if (state->find("rng") != nullptr) {
      state_.rng.restore();
    }
  }
  if (const State* seed = checkpoint.find("seed"); seed != nullptr && !config().seed) {
    seed_ = static_cast<std::uint64_t>(seed->integer());
  }
  if (const State* results = checkpoint.find("results")) {
    results_.load_state_dict(*results);
  }
}

void BaseRunner::load_checkpoint(const std::filesystem::path& path) {
  const State checkpoint = read_checkpoint(path);
  load_checkpoint(checkpoint);
  // A run that goes back logs again what came after.
  const State* lines = checkpoint.find("metrics_lines");
  if (services_->metrics_log && lines != nullptr && services_->workspace.holds(path)) {
    detail::restore_metrics(*services_, lines->integer(), waiting_metrics(checkpoint));
    settle_best();  // best.pth may hold what came after
  }
}

void BaseRunner::restore(const State& original) {
  initialize_unless_initializing();
  check<CheckpointError>(original.is_map(), where, "expected a map, got ", original.kind());
  check<CheckpointError>(original.find("state") != nullptr || excluded_from_loading("state"), where,
                         "expected a checkpoint of a run, got one without 'state'; set `pretrained` to load weights");
  State checkpoint = original;
  for (const auto& item : config().checkpoint.exclude_from_loading) {
    const std::string name = part_name(item);
    std::vector<std::string> known = {"runner",    "state",     "seed",          "dataloaders",
                                      "results",   "loop",      "model",         "ema",
                                      "optimizer", "scheduler", "metrics_lines", "metrics_waiting"};
    const bool is_part = std::find(known.begin(), known.end(), name) != known.end();
    for (const auto& entry : original.map()) {
      known.push_back(entry.key.is_string() ? entry.key.string() : entry.key.text());
    }
    if (!drop(checkpoint, name) && !is_part) {  // a part need not be in every checkpoint
      fail<ConfigError>(where, "expected in checkpoint.exclude_from_loading what the checkpoint holds, got ",
                        quote(item), did_you_mean(name, known), "; `danling ckpt show` lists what a checkpoint holds");
    }
  }
  if (excluded_from_loading("runner")) {
    logger().warning("runner.load_checkpoint: 'runner' is excluded from loading, so the config is not compared");
  }
  load_state_dict(checkpoint);
  load_components(checkpoint);
  say_whose_options_hold(original, checkpoint);
  services_->inexact = false;  // whatever a step that threw had left is replaced
  if (const State* data = checkpoint.find("dataloaders")) {
    load_dataloader_state(*data);
  }
}

// A config that is not compared may differ in what the checkpoint brings too: a learning rate changed in vain is a
// surprise after a week.
void BaseRunner::say_whose_options_hold(const State& original, const State& restored) {
  const State* stored = original.find("runner");
  if (!excluded_from_loading("runner") || stored == nullptr || !stored->is_map()) {
    return;
  }
  const auto is_restored = [&](const char* name) {
    const State* part = excluded_from_loading(name) ? nullptr : restored.find(name);
    return part != nullptr && !part->is_null();
  };
  for (const auto& difference : differences(convert_tree<ConfigTree>(*stored), to_tree(config()))) {
    if (!difference.key.starts_with("optim.")) {
      continue;
    }
    const bool scheduled = difference.key == "optim.lr" && is_restored("scheduler");
    const std::string parts =
        concat(is_restored("optimizer") ? "'optimizer'" : "", is_restored("optimizer") && scheduled ? " and " : "",
               scheduled ? "'scheduler'" : "");
    logger().warning(concat("runner.load_checkpoint: ", difference.key, " is ", difference.first,
                            " in the checkpoint and ", difference.second, " here; ",
                            parts.empty() ? std::string("that of the config holds")
                                          : concat("that of the checkpoint holds, with its ", parts, " (put ", parts,
                                                   " into checkpoint.exclude_from_loading for that of the config)")));
  }
}

void BaseRunner::load_pretrained(const std::filesystem::path& path) {
  load_pretrained(read_checkpoint(path));
  logger().info(concat("loaded the weights of ", path.string()));
}

void BaseRunner::restore_weights(const State& checkpoint) {
  initialize_unless_initializing();
  constexpr auto operation = "runner.load_pretrained";
  check<CheckpointError>(checkpoint.is_map(), operation, "expected a map, got ", checkpoint.kind());
  if (const State* ema = checkpoint.find("ema"); ema != nullptr && !ema->is_null()) {
    load_model(*ema);
    return;
  }
  if (const State* model = checkpoint.find("model")) {
    load_model(*model);
    return;
  }
  // A plain state_dict, as torch.save(model.state_dict()) writes it.
  const bool plain =
      !checkpoint.map().empty() && std::all_of(checkpoint.map().begin(), checkpoint.map().end(),
                                               [](const auto& entry) { return entry.value.is_tensor(); });
  check<CheckpointError>(plain, operation, "expected 'ema', 'model' or a map of tensors, got none of them");
  load_model(checkpoint);
}

State BaseRunner::read_checkpoint(const std::filesystem::path& path) {
  if (services_ != nullptr && services_->checkpoint_manager != nullptr) {
    return services_->checkpoint_manager->load_checkpoint(path);  // which waits for what is being written
  }
  return load_weights(path);
}

bool BaseRunner::is_finished() const { return services_ != nullptr && services_->finished; }

void BaseRunner::write_summary(const std::string& status, const std::string& error, int signal, int exit_code) {
  if (services_ == nullptr || !services_->workspace.is_open()) {
    return;
  }
  reopen_workspace();
  // The summary of the start that finished the run knows more than a later one, which did nothing.
  if (services_->finished && says_finished(services_->workspace.dir())) {
    return;
  }
  Result details = summary_details();
  if (services_->checkpoint_manager != nullptr) {
    if (const auto errors = services_->checkpoint_manager->checkpoint_health().error_count; errors > 0) {
      details.set("checkpoint_errors", static_cast<double>(errors));
    }
  }
  if (const auto* best = results_.saved_best(); best != nullptr && !unsaved_best_.empty()) {
    details.set("unsaved_best", static_cast<double>(best->index));
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - services_->started;
  services_->workspace.write_summary({.status = status,
                                      .error = error,
                                      .signal = signal,
                                      .exit_code = exit_code,
                                      .epoch = state_.train.epoch,
                                      .global_step = state_.train.global_step,
                                      .seconds = elapsed.count(),
                                      .details = std::move(details)});
}

}  // namespace danling::inline v0
