// The run's records: results, score, summary.
#include <runner/records.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <thread>
#include <utility>

#include <danling/checkpoint/manager.hpp>
#include <danling/config/tree.hpp>
#include <danling/core/detail/suggest.hpp>
#include <danling/runner/base_runner.hpp>

#include <runner/rank_messages.hpp>
#include <runner/saver.hpp>
#include <runner/score_names.hpp>
#include <runner/services.hpp>
#include <runner/setup.hpp>

namespace danling::inline v0 {

bool BaseRunner::Internals::Records::is_open() const {
  return runner_.services_ != nullptr && runner_.services_->recorder != nullptr &&
         runner_.services_->recorder->is_open();
}

void BaseRunner::Internals::Records::begin() {
  auto& services = *runner_.services_;
  if (std::exchange(runner_.recording_begun_, true)) {
    return;
  }
  const auto ranks = Saver(runner_).gather_rank_states();  // a resumed run may save at once
  bool takes_over = services.recorder != nullptr && open_recorder();
  const bool saves = takes_over || runner_.checkpoint_manager().is_collective();
  if (!runner_.group().alone()) {
    takes_over = detail::exchange(runner_.group(), takes_over ? "1" : "0").front() == "1";
  }
  if (takes_over && !runner_.config().checkpoint.load_only) {
    const auto exposed =
        runner_.gather_checkpoint_state(/*writes=*/false);  // all ranks expose what the main process saves
    if (saves) {
      adopt_history();
    }
  }
  if (services.recorder != nullptr) {
    services.recorder->taken_over();
    if (services.restore.resumes() && !services.restore.finished) {
      Saver(runner_).reconcile_best();
    }
  }
  if (!runner_.group().alone()) {
    open_rank_log();
  }
  runner_.init_heartbeat();
}

void BaseRunner::Internals::Records::enter_generation() {
  if (runner_.is_main_process() && runner_.config().record && runner_.services_->recorder == nullptr) {
    take_over();
  }
  if (!runner_.group().alone()) {
    open_rank_log();
  }
  runner_.init_heartbeat();
  runner_.recording_begun_ = true;
}

// After a process is killed, the kernel releases its lock of the directory a moment after its connections.
void BaseRunner::Internals::Records::take_over() {
  auto& services = *runner_.services_;
  Setup(runner_).make_recorder();
  services.logger.close();  // the log under its previous rank
  services.logger.show(runner_.config().console);
  services.restore = {.path = services.workspace.checkpoint_dir() / "latest.pth"};
  const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    try {
      services.recorder->open(services.restore, /*newest=*/true, recorded_config(), runner_.code());
      break;
    } catch (const StateError&) {
      if (std::chrono::steady_clock::now() > last) {
        throw;
      }
    }
  }
  services.recorder->taken_over();
  services.took_over = true;
}

// Next to the log of rank 0, which has set up the directory. Fault-tolerant processes change their ranks.
void BaseRunner::Internals::Records::open_rank_log() {
  const std::string own = is_open() && runner_.config().log ? runner_.workspace().log_file().string() : std::string();
  const std::filesystem::path first = detail::exchange(runner_.group(), own).front();
  if (first.empty()) {
    return;
  }
  std::error_code missing;
  const bool sees = std::filesystem::exists(first, missing);
  warn_invisible_directory(
      detail::exchange(runner_.group(), sees ? "" : std::filesystem::current_path(missing).string()), first);
  if (!sees || runner_.is_main_process() || runner_.logger().has_file()) {
    return;
  }
  auto path = first.parent_path() / concat(first.stem().string(), runner_.fault_ == nullptr ? ".rank" : ".pid",
                                           runner_.fault_ == nullptr ? runner_.rank() : getpid(), ".log");
  try {
    runner_.logger().open_file(path.string());
    runner_.services_->rank_log = path.string();
  } catch (const std::exception& error) {
    runner_.logger().warning(concat("the log of rank ", runner_.rank(), " is not written: ", error.what()));
  }
}

// @param folders  of the processes that do not see the log of rank 0
void BaseRunner::Internals::Records::warn_invisible_directory(const std::vector<std::string>& folders,
                                                              const std::filesystem::path& log) {
  for (std::size_t rank = 0; rank < folders.size() && runner_.is_main_process(); ++rank) {
    if (!folders[rank].empty()) {
      runner_.logger().warning(concat("rank ", rank, " does not see the run's directory ",
                                      log.parent_path().parent_path().string(), " from ", folders[rank],
                                      ": its log is not written, and it could not resume; set workspace_root to a "
                                      "directory that all processes share"));
    }
  }
}

detail::RecordedConfig BaseRunner::Internals::Records::recorded_config() const {
  const ConfigTree full = to_tree(runner_.config());
  return {to_yaml(full), canonical_yaml(runner_.config()),
          to_yaml(changed_entries(full, to_tree(runner_.config_.defaults()))), runner_.model_metadata()};
}

bool BaseRunner::Internals::Records::open_recorder() {
  auto& services = *runner_.services_;
  const auto& from = services.restore;
  bool take_over = false;
  try {
    take_over = services.recorder->open(from, runner_.checkpoint_manager().is_latest(from.path), recorded_config(),
                                        runner_.code());
  } catch (...) {
    runner_.recording_begun_ = false;  // the next start retries
    throw;
  }
  if (!runner_.config().seed) {
    services.logger.info(concat("seed: ", runner_.seed_));
  }
  if (from.resumes() && !from.finished) {
    select_score();
  }
  return take_over;
}

// For a run that does not resume from the newest checkpoint of its directory: saves the state under the names that it
// would have had, also best and history. They may be missing if a process died in its first save, or if `latest` is
// damaged or in another directory. Runs on all ranks if all of them save.
void BaseRunner::Internals::Records::adopt_history() {
  auto& services = *runner_.services_;
  const std::filesystem::path directory =
      services.recorder != nullptr ? services.recorder->taken_from() : std::filesystem::path();
  if (!directory.empty()) {
    const auto* best = runner_.results_.saved_best();
    const auto problems = runner_.checkpoint_manager().adopt(
        directory,
        {.step_mode = runner_.is_step_mode(),
         .progress = runner_.is_step_mode() ? runner_.state_.train.global_step : runner_.state_.train.epoch,
         .best = best == nullptr ? std::nullopt : std::optional(best->index + (runner_.is_step_mode() ? 0 : 1))});
    for (const auto& problem : problems) {
      services.logger.warning(problem);
    }
  }
  runner_.save_checkpoint("latest", /*save_best=*/true, /*last_step=*/false, /*force=*/true);
  runner_.wait_for_checkpoints();
  retry_writes(/*again=*/true);
}

void BaseRunner::Internals::Records::select_score() {
  runner_.results_.select(runner_.score_split(), runner_.config().score_name, known_score_direction());
}

std::optional<bool> BaseRunner::Internals::Records::known_score_direction() const {
  const auto& mode = runner_.config().score_mode;
  return mode ? std::optional(*mode == "max") : runner_.higher_is_better(runner_.config().score_name);
}

void BaseRunner::Internals::Records::log_guessed_score() const {
  const std::string& name = runner_.config().score_name;
  if (!known_score_direction() && name != "loss" && runner_.score_split()) {
    runner_.logger().info(concat("score: no metric declares the direction of ", quote(name),
                                 ": assumes that higher is better; set score_mode to min or max"));
  }
}

void BaseRunner::Internals::Records::append(std::int64_t index, const Result& result) {
  runner_.results_.append(index, result);
  if (runner_.results_.is_best()) {
    runner_.best_average_ = runner_.evaluated_average();
  }
  auto& services = *runner_.services_;
  const bool has_score = !runner_.results_.score_split() || runner_.results_.latest_score().has_value();
  const auto* numbers = has_score ? nullptr : result.find(*runner_.results_.score_split());
  if (numbers != nullptr && std::holds_alternative<Result>(*numbers) && runner_.results_.rows().size() == 1) {
    const auto names = detail::number_names(std::get<Result>(*numbers));
    const std::string& name = runner_.results_.score_name();
    const bool is_list = std::find(names.begin(), names.end(), name) != names.end();
    services.logger.warning(
        concat("no score ", quote(name), " in the results of split ", quote(*runner_.results_.score_split()),
               ", which has [", join(names), "]: no best checkpoint is kept; set score_name",
               is_list ? concat(" to a number of this list, as ", quote(name + ".0")) : did_you_mean(name, names)));
  }
  runner_.callbacks_.notify(&Callback::on_result, "on_result", ResultEvent{{runner_}, index, result, runner_.results_});
}

void BaseRunner::Internals::Records::retry_writes(bool again) {
  if (runner_.services_->recorder != nullptr) {
    runner_.services_->recorder->retry_writes(runner_.results_, again);
  }
}

}  // namespace danling::inline v0
