// Evaluation.
#include <danling/runner/torch_runner_base.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include <danling/telemetry/logger.hpp>

#include "runner/host_loop.hpp"
#include "runner/loop_frame.hpp"
#include "runner/paused_pass.hpp"
#include "runner/services.hpp"
#include "runner/without_gradients.hpp"

namespace danling::inline v0 {

namespace {

// Samples that repeat others would be counted twice. Without them the ranks' shares add up to each sample once:
// averages weigh by samples, and ranks may have different numbers of batches.
void check_unpadded(const data::LoaderBase& loader, std::string_view split) {
  const data::LoaderOptions& options = loader.options();
  const std::int64_t ranks = options.shard.world_size;
  const auto samples = loader.num_samples();
  check<ConfigError>(!options.shard.padding || ranks == 1 || options.drop_last || (samples && *samples % ranks == 0),
                     "runner.evaluate", "expected a loader that repeats no samples for the evaluation of split ",
                     quote(split), ", got one that pads ", samples.value_or(0), " samples to a multiple of ", ranks,
                     "; set shard.padding to false");
}

// A rank may have no samples of the last batch.
std::int64_t most_of_all(const Group& group, std::int64_t done) {
  if (group.alone()) {
    return done;
  }
  std::int64_t most = 0;
  for (const std::string& other : group.all_gather(std::to_string(done))) {
    if (other == failed_message) {
      fail<DistributedError>("runner.evaluate",
                             "expected every process to go on, got an error in another one; its log says more");
    }
    most = std::max(most, static_cast<std::int64_t>(std::stoll(other)));
  }
  return most;
}

}  // namespace

void TorchRunnerBase::enter(RunnerMode mode, std::string_view split) {
  mode_ = mode;
  split_ = split;
  if (!pin_warning_.empty()) {
    logger().warning(std::exchange(pin_warning_, std::string()));
  }
  set_training(mode == RunnerMode::train);
  const auto& chosen = mode == RunnerMode::train ? train_metrics : evaluate_metrics;
  active_metrics_ = mode == RunnerMode::infer ? nullptr : chosen != nullptr ? chosen.get() : metrics.get();
  meters.reset();
  if (active_metrics_ != nullptr) {
    active_metrics_->reset();
  }
  if (criterion.losses() != nullptr) {
    criterion.losses()->reset();
  }
  predicted_metrics_ = dynamic_cast<Metrics*>(active_metrics_);
  find_typed();
}

void TorchRunnerBase::set_training(bool training) {
  model.train(training);
  ema.train(training);
  for (auto& [name, handle] : models) {
    const bool learns =
        std::any_of(learners_.begin(), learners_.end(), [&](const Learner& learner) { return learner.name == name; });
    handle.train(training && (learns || handle.named_parameters().empty()));
  }
}

bool TorchRunnerBase::any_script() const {
  return evaluation_model().is_script() ||
         std::any_of(models.begin(), models.end(), [](const auto& item) { return item.second.is_script(); });
}

void TorchRunnerBase::fail_metrics() const {
  fail<StateError>("runner.update_metrics",
                   "expected metrics of predictions and targets (Metrics) or over this runner's batch type "
                   "(BatchMetrics), got another kind in split ",
                   quote(split_), "; update them in your own train_step and evaluate_step");
}

std::optional<bool> TorchRunnerBase::higher_is_better(std::string_view score) const {
  if (score.starts_with("losses.")) {
    return false;
  }
  const MetricsBase* asked = score_metrics();
  return asked != nullptr ? asked->higher_is_better(score) : std::nullopt;
}

// Those that are measured on the split that the best is chosen by.
const MetricsBase* TorchRunnerBase::score_metrics() const {
  const auto split = score_split();
  const auto evaluated = evaluate_splits();
  const bool evaluates = split && std::find(evaluated.begin(), evaluated.end(), *split) != evaluated.end();
  const auto& chosen = evaluates || !split ? evaluate_metrics : train_metrics;
  return chosen != nullptr ? chosen.get() : metrics.get();
}

data::LoaderVisit TorchRunnerBase::visit(std::string_view split) {
  const auto training = train_splits();
  const bool trains = std::find(training.begin(), training.end(), split) != training.end();
  return {loader(split), 0, trains};
}

Result TorchRunnerBase::evaluate_batches(std::string_view split, std::optional<std::int64_t> steps) {
  data::LoaderBase& loader = this->loader(split);
  check<StateError>(host_ == nullptr || host_->evaluation == nullptr, "runner.evaluate",
                    "expected finish_evaluation() after evaluate_on_batch, got another evaluation");
  check_unpadded(loader, split);
  const PausedPass paused(*this);
  enter(RunnerMode::evaluate, split);
  const auto total = steps ? steps : loader.length();
  detail::LoopFrame frame(*this, split, total);
  frame.start();
  data::LoaderVisit batches = visit(split);
  std::int64_t done = 0;
  while ((!steps || done < *steps) && batches.next()) {
    evaluate_one(frame, batch_of(loader), loader.batch_size());
    frame.log(++done);
    // Else the next step boundary stops, and saves; of several ranks, which may have other numbers of batches, too.
    if (group().alone() && (saves_on_stop_ || !is_training())) {
      maybe_stop(/*save=*/saves_on_stop_);
    }
  }
  batches.end();
  if (steps) {
    const std::int64_t most = most_of_all(group(), done);
    check<DataError>(most == *steps, "runner.evaluate_steps", "expected ", *steps, " batches in split ", quote(split),
                     ", got ", most);
  }
  return frame.finish();
}

at::Tensor TorchRunnerBase::evaluate_one(detail::LoopFrame& frame, data::BatchRef batch, std::int64_t samples) {
  const auto [normalizer, tokens] = count_batch(batch);
  frame.data_ready();
  // Not around the loader: what a dataset keeps from its first use must serve training too.
  const detail::WithoutGradients guard(any_script());
  at::Tensor loss = run_evaluate_step(batch);
  if (loss.defined() && normalizer.value_or(1) > 0) {
    frame.loss().update(loss, normalizer.value_or(1));
  }
  frame.observe(samples, tokens);
  return loss;
}

Result TorchRunnerBase::evaluate_in_training(std::string_view split, bool whole) {
  // A checkpoint from inside an evaluation must repeat it from its beginning, generators included.
  state_.rng.capture();
  rng_frozen_ = true;
  saves_on_stop_ = true;
  Result result;
  try {
    result = whole ? evaluate_epoch(split) : evaluate_steps(split);
  } catch (...) {
    rng_frozen_ = false;
    saves_on_stop_ = false;
    throw;
  }
  rng_frozen_ = false;
  saves_on_stop_ = false;
  return result;
}

Result TorchRunnerBase::evaluate_epoch(std::string_view split) {
  initialize();
  return evaluate_batches(split, std::nullopt);
}

Result TorchRunnerBase::evaluate_steps(std::string_view split, std::optional<std::int64_t> steps) {
  initialize();
  if (!steps) {
    const auto total = this->steps();
    check<ConfigError>(total.has_value(), "runner.evaluate_steps",
                       "expected a number of batches, got none; pass `steps` or set `steps` in the config");
    steps = std::max<std::int64_t>(*total / 20, 1);
    if (const auto length = loader(split).length()) {
      steps = std::min(*steps, *length);  // not asked for by number, so a short split is no error
    }
  }
  check<ConfigError>(*steps >= 0, "runner.evaluate_steps", "expected a number of batches that is not negative, got ",
                     *steps);
  const auto length = loader(split).length();
  check<DataError>(!length || *steps <= *length || !group().alone(), "runner.evaluate_steps", "expected ", *steps,
                   " batches in split ", quote(split), ", got ", length.value_or(0));
  return evaluate_batches(split, steps);
}

Result TorchRunnerBase::evaluate(const std::vector<std::string>& requested) {
  initialize();
  const auto names = requested.empty() ? evaluate_splits() : requested;
  for (const auto& name : names) {
    loader(name);  // refuses a name that there is not, before the first is evaluated
  }
  check<ConfigError>(!names.empty(), "runner.evaluate",
                     "expected an evaluation split, got none; set a dataset besides the training data, or "
                     "evaluate_splits");
  Result result;
  for (const auto& split : names) {
    result.set(split, evaluate_epoch(split));
  }
  logger().info(concat("evaluate\n", result.text()));
  return result;
}

void TorchRunnerBase::fill_summary(RunSummary& summary) const {
  BaseRunner::fill_summary(summary);
  if (skipped_updates_ > 0) {
    summary.facts.emplace_back("skipped_updates", skipped_updates_);
  }
  if (!test_result_.empty()) {
    summary.facts.emplace_back("test_weights", tested_weights_);
    summary.details["test"] = test_result_;
  }
}

}  // namespace danling::inline v0
