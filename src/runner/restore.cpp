// Restores a run from a checkpoint: compares the config, skips excluded parts, restores the program's objects.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <danling/checkpoint/manager.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/runner/base_runner.hpp>
#include <danling/runner/parallelism.hpp>

#include <runner/display.hpp>
#include <runner/earlier_run.hpp>
#include <runner/excluded.hpp>
#include <runner/flag_scope.hpp>
#include <runner/records.hpp>
#include <runner/restorer.hpp>
#include <runner/saver.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {
namespace {

constexpr auto load_where = "runner.load_checkpoint";
constexpr std::array<std::string_view, 21> parts = {
    "runner", "state",     "seed",      "dataloaders",   "results",         "loop",      "model",
    "ema",    "optimizer", "scheduler", "metrics_lines", "metrics_waiting", "callbacks", "tracked",
    "ranks",  "models",    "swa",       "averages",      "best_average",    "scaler",    "parallel"};

// Lines of metrics that were not on disk when the checkpoint was taken.
std::string waiting_metrics(const State& checkpoint) {
  const State* text = checkpoint.find("metrics_waiting");
  return text != nullptr ? text->string() : std::string();
}

PretrainedOptions pretrained_options(const RunnerConfig& config) {
  PretrainedOptions out{.strict = config.pretrained_strict, .key = config.pretrained_key.value_or("")};
  for (const RenameRule& rule : config.pretrained_rename) {
    out.rename_pattern.emplace_back(rule.pattern, rule.replacement);
  }
  out.skip = config.pretrained_skip.value_or(std::vector<std::string>());
  return out;
}

}  // namespace

void BaseRunner::auto_restore() {
  auto& services = *services_;
  services.base_restored = true;
  auto& from = services.restore;
  if (saves_shards()) {
    from = Internals::Restorer(*this).find();  // only once each rank knows its parts
  }
  if (from.path.empty()) {
    return;
  }
  const State checkpoint = std::exchange(from.state, State());
  if (from.finished) {
    const auto exposed = gather_checkpoint_state(/*writes=*/true);
    load_components(checkpoint);
    const detail::EarlierRun earlier(services.workspace.dir(), services.logger);
    state_.train.global_step = earlier.last_global_step();
    state_.train.epoch = earlier.last_epoch() + (epochs() ? 1 : 0);
    services.logger.info(concat("auto_resume: the run is finished, ", from.path.string(), " holds its model"));
  } else if (from.weights_only) {
    Internals::Restorer(*this).restore_weights(checkpoint, pretrained_options(config()), from.path);
  } else {
    Internals::Restorer(*this).restore(checkpoint, from.path);
    if (const State* lines = checkpoint.find("metrics_lines")) {
      from.lines = lines->integer();
      from.waiting = waiting_metrics(checkpoint);
    }
    services.logger.info(concat("resumed ", from.path.string(), " ", detail::place_in_run(*this)));
  }
}

// Loads the state of the program: callbacks and tracked objects.
void BaseRunner::Internals::Restorer::load_extras(const State& checkpoint) {
  if (const State* callbacks = checkpoint.find("callbacks")) {
    for (const auto& name : runner_.callbacks_.load_state_dict(*callbacks)) {
      runner_.logger().warning(concat("runner.load_checkpoint: the checkpoint has the state of a callback ",
                                      quote(name), ", which this run does not have"));
    }
  }
  if (const State* all = checkpoint.find("tracked")) {
    for (const auto& entry : all->map()) {
      const auto& own = runner_.tracked_;
      if (std::none_of(own.begin(), own.end(), [&](const auto& item) { return item.first == entry.key.string(); })) {
        runner_.logger().warning(concat("runner.load_checkpoint: the checkpoint has the state of ",
                                        quote(entry.key.string()), " under 'tracked', which this run does not track"));
      }
    }
  }
  for (const auto& [name, tracked] : runner_.tracked_) {
    const State* all = checkpoint.find("tracked");
    const State* own = all != nullptr ? all->find(name) : nullptr;
    check<CheckpointError>(own != nullptr || runner_.excluded_from_loading("tracked"), load_where,
                           "expected the state of ", quote(name),
                           " under 'tracked' in the checkpoint, got none; put 'tracked' into ",
                           "checkpoint.exclude_from_loading to keep its initial state");
    if (own != nullptr) {
      tracked.load_state_dict(*own);
    }
  }
}

bool BaseRunner::excluded_from_loading(std::string_view key) const {
  const auto& excluded = config().checkpoint.exclude_from_loading;
  const bool rewinding = services_ != nullptr && services_->rewinding;
  return !rewinding && std::any_of(excluded.begin(), excluded.end(),
                                   [&](const std::string& item) { return detail::part_name(item) == key; });
}

void BaseRunner::Internals::Restorer::check_same_meaning(const State& stored) const {
  const auto saved = runner_.config_.make();
  from_tree(*saved, convert_tree<ConfigTree>(stored), "config of the checkpoint");
  const auto found = find_differences(semantic_tree(*saved), semantic_tree(runner_.config()));
  if (found.empty()) {
    return;
  }
  std::string text;
  for (const auto& difference : found) {
    text += concat(text.empty() ? "" : "; ", difference.key, " is ", difference.first, " in the checkpoint and ",
                   difference.second, " here");
  }
  fail<ConfigError>(load_where, "expected the same config as the checkpoint's, got one where ", text,
                    " (start a new run, align the config, or put 'runner' into checkpoint.exclude_from_loading)");
}

// With other slices and stages, random numbers and the order of sums differ.
void BaseRunner::Internals::Restorer::check_same_axes(const State& checkpoint) const {
  const State* saved = checkpoint.find("parallel");
  const State own = detail::axes_of(runner_.parallelism());
  // With virtual ranks every layout has the same bits.
  if (saved == nullptr || runner_.config().stack_name() != "parallel" || runner_.config().parallel.virtual_ranks ||
      runner_.excluded_from_loading("parallel")) {
    return;
  }
  const auto text = [](const State& axes) {
    std::string out;
    for (const auto& axis : axes.map()) {
      out += concat(out.empty() ? "" : " x ", axis.key.string(), " ", axis.value.integer());
    }
    return out.empty() ? std::string("one process") : out;
  };
  const std::string before = text(saved->at("axes")), now = text(own);
  if (before == now) {
    return;
  }
  check<ConfigError>(runner_.config().parallel.allow_degree_change, load_where, "expected the axes of the checkpoint, ",
                     before, ", got ", now, "; set parallel.allow_degree_change to continue with others");
  runner_.logger().warning(concat(load_where, ": the axes were ", before, " and are ", now));
}

void BaseRunner::restore(const State& checkpoint) { Internals::Restorer(*this).restore(checkpoint); }

void BaseRunner::load_checkpoint(const std::filesystem::path& path) {
  Internals::Restorer(*this).initialize();
  if (!group().alone()) {  // another rank may still be writing the file: all must read the same
    std::string failure;
    try {
      checkpoint_manager().wait(std::nullopt);
    } catch (const CheckpointError& error) {
      failure = error.what();
    }
    group().barrier();
    if (!failure.empty()) {
      logger().warning(failure);
    }
  }
  const State checkpoint = read_checkpoint(path);
  Internals::Restorer(*this).restore(checkpoint, path);
  // A roll-back logs the later lines again.
  const State* lines = checkpoint.find("metrics_lines");
  if (lines == nullptr || services_->recorder == nullptr || !services_->workspace.contains(path)) {
    return;
  }
  if (!recording_begun_) {  // the run then continues in the checkpoint's directory
    services_->restore = {
        .path = std::filesystem::absolute(path), .lines = lines->integer(), .waiting = waiting_metrics(checkpoint)};
  } else {
    Internals::Restorer(*this).roll_back_records(checkpoint);
  }
}

void BaseRunner::Internals::Restorer::roll_back_records(const State& checkpoint) {
  const State* lines = checkpoint.find("metrics_lines");
  if (lines != nullptr && Records(runner_).is_open()) {
    runner_.services_->recorder->restore_lines(lines->integer(), waiting_metrics(checkpoint));
    Saver(runner_).reconcile_best();  // best.pth may hold a later state
  }
}

void BaseRunner::Internals::Restorer::initialize() {
  if (runner_.phase_ != Phase::initializing) {
    runner_.initialize();
  }
}

// The checkpoint without excluded parts; excluded entries inside parts have the values of the current objects.
State BaseRunner::Internals::Restorer::without_excluded(const State& original) {
  if (runner_.services_->rewinding) {
    return original;
  }
  State out = original;
  std::optional<State> own;
  for (const auto& item : runner_.config().checkpoint.exclude_from_loading) {
    const std::string name = detail::part_name(item);
    if (out.map().erase(name)) {
      continue;
    }
    auto path = detail::find_path(original, name);
    const bool is_part = std::find(parts.begin(), parts.end(), name) != parts.end();
    if (!is_part && !own) {
      own = runner_.state_dict();
    }
    if (!is_part && !path) {
      path = detail::find_path(*own, name);
    }
    if (path) {
      detail::keep_current(out, *own, *path, item);
    } else if (!is_part) {  // a checkpoint may lack a part
      std::vector<std::string> known(parts.begin(), parts.end());
      for (const auto& entry : original.map()) {
        known.push_back(entry.key.is_string() ? entry.key.string() : entry.key.text());
      }
      fail<ConfigError>(load_where, "expected in checkpoint.exclude_from_loading parts of the checkpoint, got ",
                        quote(item), did_you_mean(name, known), "; `danling ckpt show` lists what a checkpoint holds");
    }
  }
  return out;
}

void BaseRunner::Internals::Restorer::restore(const State& original, const std::filesystem::path& path) {
  initialize();
  check<CheckpointError>(original.is_map(), load_where, "expected a map, got ", original.kind());
  check<CheckpointError>(original.find("state") != nullptr || runner_.excluded_from_loading("state"), load_where,
                         "expected a checkpoint of a run, got one without 'state'; set `pretrained` to load weights");
  check_same_axes(original);
  const State checkpoint = without_excluded(of_this_rank(original));
  if (runner_.excluded_from_loading("runner")) {
    runner_.logger().warning(
        "runner.load_checkpoint: 'runner' is excluded from loading, so the config is not compared");
  }
  {
    const auto exposed = runner_.gather_checkpoint_state(/*writes=*/true);
    runner_.services_->base_loaded = false;
    runner_.load_state_dict(checkpoint);
    check<StateError>(runner_.services_->base_loaded, "runner.load_state_dict",
                      "expected an override to call load_state_dict() of its base class, got none: the run would not "
                      "know where it is");
    runner_.load_components(checkpoint);
  }
  warn_changed_options(original, checkpoint);
  load_extras(checkpoint);
  runner_.services_->has_partial_step = false;  // loading replaces the partial effects of a step that threw
  if (const State* data = checkpoint.find("dataloaders")) {
    runner_.load_dataloaders(*data);
  }
  int handled = runner_.requests_.stop.load(std::memory_order_relaxed);
  if (handled < 0) {  // clears a handled stop; a new request remains
    runner_.requests_.stop.compare_exchange_strong(handled, 0);
  }
  runner_.callbacks_.notify(&Callback::on_restore, "on_restore", RestoreEvent{{runner_}, path});
}

void BaseRunner::Internals::Restorer::rewind(const State& own) {
  const detail::FlagScope all(runner_.services_->rewinding);
  runner_.load_state_dict(own);
  runner_.load_components(own);
  load_extras(own);
}

// An uncompared config may differ from the optimizer's restored options; without a warning, a changed learning rate
// would silently have no effect.
void BaseRunner::Internals::Restorer::warn_changed_options(const State& original, const State& restored) {
  const State* stored = original.find("runner");
  if (!runner_.excluded_from_loading("runner") || stored == nullptr || !stored->is_map()) {
    return;
  }
  const auto is_restored = [&](std::string_view name) {
    const State* part = runner_.excluded_from_loading(name) ? nullptr : restored.find(name);
    const auto& excluded = runner_.config().checkpoint.exclude_from_loading;
    const std::string options = concat(name, name == "optimizer" ? ".param_groups" : ".");
    return part != nullptr && !part->is_null() &&
           std::none_of(excluded.begin(), excluded.end(),
                        [&](const std::string& item) { return detail::part_name(item).starts_with(options); });
  };
  for (const auto& difference : find_differences(convert_tree<ConfigTree>(*stored), to_tree(runner_.config()))) {
    if (!difference.key.starts_with("optim.")) {
      continue;
    }
    const bool scheduled = difference.key == "optim.lr" && is_restored("scheduler");
    const std::string parts =
        concat(is_restored("optimizer") ? "'optimizer'" : "", is_restored("optimizer") && scheduled ? " and " : "",
               scheduled ? "'scheduler'" : "");
    runner_.logger().warning(concat("runner.load_checkpoint: ", difference.key, " is ", difference.first,
                                    " in the checkpoint and ", difference.second, " here; ",
                                    parts.empty()
                                        ? std::string("uses the config's")
                                        : concat("uses the checkpoint's, restored with ", parts, " (put ", parts,
                                                 " into checkpoint.exclude_from_loading to use the config's)")));
  }
}

State BaseRunner::read_checkpoint(const std::filesystem::path& path) {
  if (!saves_shards() && is_sharded(path)) {  // a run of several processes: read it whole
    return load_sharded(path);
  }
  return checkpoint_manager().load_checkpoint(path);  // waits for saves of this process
}

bool BaseRunner::is_finished() const { return services_ != nullptr && services_->restore.finished; }

}  // namespace danling::inline v0
