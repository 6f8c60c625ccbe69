#include <runner/evaluator.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include <danling/telemetry/logger.hpp>

#include <runner/adapters.hpp>
#include <runner/agreed_error.hpp>
#include <runner/agreement.hpp>
#include <runner/averages.hpp>
#include <runner/checks.hpp>
#include <runner/evaluation_range.hpp>
#include <runner/flag_scope.hpp>
#include <runner/forward_scope.hpp>
#include <runner/host_loop.hpp>
#include <runner/loop_frame.hpp>
#include <runner/paused_pass.hpp>
#include <runner/rank_messages.hpp>
#include <runner/services.hpp>
#include <runner/shard_seed.hpp>
#include <runner/watchdog.hpp>
#include <runner/watched_loop.hpp>
#include <runner/without_gradients.hpp>

namespace danling::inline v0 {

namespace {

// Padding would count samples twice. Without it the ranks' shards contain each sample once: averages are weighted by
// samples, and ranks may have different numbers of batches.
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
std::int64_t max_over_ranks(const Group& group, std::int64_t done) {
  if (group.alone()) {
    return done;
  }
  std::int64_t most = 0;
  for (const std::string& other : detail::exchange(group, std::to_string(done))) {
    most = std::max(most, static_cast<std::int64_t>(std::stoll(other)));
  }
  return most;
}

}  // namespace

data::LoaderVisit TorchRunnerBase::Internals::Evaluator::visit(std::string_view split) {
  const auto training = runner_.train_splits();
  const bool trains = std::find(training.begin(), training.end(), split) != training.end();
  return {runner_.loader(split), 0, trains};
}

Result TorchRunnerBase::Internals::Evaluator::evaluate(std::string_view split, std::optional<std::int64_t> steps,
                                                       bool demanded) {
  data::LoaderBase& loader = runner_.loader(split);
  check<StateError>(runner_.host_ == nullptr || runner_.host_->evaluation == nullptr, "runner.evaluate",
                    "expected finish_evaluation() after evaluate_on_batch, got another evaluation");
  check<StateError>(!runner_.evaluating_, "runner.evaluate",
                    "expected no evaluation in progress, got a call from a callback or step during one; call it "
                    "from a training event");
  check_unpadded(loader, split);
  Checks(runner_).same_loop("runner.evaluate", split);
  try {
    return evaluate(loader, split, steps, demanded);
  } catch (const std::exception& error) {
    if (!runner_.is_training()) {  // in training, train() reports the error to the others
      Agreement(runner_).report_failure(error);
    }
    throw;
  } catch (...) {
    if (!runner_.is_training()) {
      Agreement(runner_).report_failure(detail::unknown_error);
    }
    throw;
  }
}

Result TorchRunnerBase::Internals::Evaluator::evaluate(data::LoaderBase& loader, std::string_view split,
                                                       std::optional<std::int64_t> steps, bool demanded) {
  const detail::FlagScope call(runner_.evaluating_);
  const WatchedLoop watched(runner_);
  const PausedPass paused(runner_);
  const Averages::Evaluated averaged(runner_);
  runner_.enter(RunnerMode::evaluate, split);
  const auto total = steps ? steps : loader.num_steps();
  detail::LoopFrame frame(runner_, split, total);
  detail::EvaluationRange range(detail::records_ranges());
  frame.start();
  data::LoaderVisit batches = visit(split);
  std::int64_t done = 0;
  const auto next = [&] {
    if (runner_.watched_ != nullptr) {
      WatchedLoop::mark_reading(runner_, done);
    }
    range.begin_batch(done);
    runner_.profiled_ = detail::records_ranges();
    const detail::NamedRange data(runner_.profiled_, "danling.data");
    return batches.next();
  };
  while (runner_.parallelism().begin_forward((!steps || done < *steps) && next())) {
    detail::ForwardScope forward(runner_.parallelism());
    if (runner_.watched_ != nullptr) {
      WatchedLoop::mark_computing(runner_, done);
    }
    if (runner_.parallelism().computes_shards()) {
      evaluate_shards(frame, batches, loader, done);
    } else {
      evaluate_batch(frame, runner_.current_batch(loader), loader.batch_size());
    }
    forward.end();
    frame.log(++done);
    // Otherwise the next step boundary saves and stops, also on several ranks, whose numbers of batches may differ.
    if (runner_.group().alone() && (runner_.saves_on_stop_ || !runner_.is_training())) {
      Agreement(runner_).stop_if_requested_here(/*save=*/runner_.saves_on_stop_);
    }
  }
  batches.end();
  if (steps && demanded) {  // a stream may end before the default
    const std::int64_t most = max_over_ranks(runner_.group(), done);
    if (most != *steps) {
      detail::fail_agreed<DataError>(true, "runner.evaluate_steps", "expected ", *steps, " batches in split ",
                                     quote(split), ", got ", most);
    }
  }
  return frame.finish();
}

void TorchRunnerBase::Internals::Evaluator::evaluate_shards(detail::LoopFrame& frame, data::LoaderVisit& batches,
                                                            data::LoaderBase& loader, std::int64_t done) {
  const auto seed = [&](std::int64_t shard) {
    const std::int64_t batch = (runner_.state_.train.global_step << 32) + done;
    seed_generators(detail::shard_seed(runner_.seed(), detail::ShardUse::evaluate, batch, shard));
  };
  for (;;) {
    frame.begin_batch(done);
    seed(loader.options().shard.rank + loader.share_index());
    evaluate_batch(frame, runner_.current_batch(loader), loader.batch_size());
    if (loader.is_last_share()) {
      break;
    }
    check<DataError>(batches.next(), "runner.evaluate", "expected all shards of a batch in split ",
                     quote(frame.split()), ", got fewer");
  }
  seed(runner_.parallelism().data_share().size);
}

at::Tensor TorchRunnerBase::Internals::Evaluator::evaluate_batch(detail::LoopFrame& frame, data::BatchRef batch,
                                                                 std::int64_t samples) {
  const auto [normalizer, tokens] = runner_.count_batch(batch).of_samples(samples);
  frame.data_ready();
  Adapters(runner_).use_present();
  // Excludes the loader: tensors that a dataset caches here must also work in training.
  const detail::WithoutGradients guard(runner_.any_script());
  at::Tensor loss = runner_.run_evaluate_step(batch);
  frame.add_loss(loss, normalizer);
  frame.observe(samples, tokens);
  if (runner_.watched_ != nullptr) {
    runner_.watched_->end_step();
  }
  return loss;
}

Result TorchRunnerBase::Internals::Evaluator::evaluate_in_training(std::string_view split, bool whole) {
  // A checkpoint taken inside an evaluation repeats it from its start, generators included.
  runner_.state_.rng.capture();
  runner_.rng_frozen_ = true;
  runner_.saves_on_stop_ = true;
  Result result;
  try {
    result = whole ? runner_.evaluate_epoch(split) : runner_.evaluate_steps(split);
  } catch (...) {
    runner_.rng_frozen_ = false;
    runner_.saves_on_stop_ = false;
    throw;
  }
  runner_.rng_frozen_ = false;
  runner_.saves_on_stop_ = false;
  return result;
}

Result TorchRunnerBase::evaluate_epoch(std::string_view split) {
  initialize();
  return Internals::Evaluator(*this).evaluate(split, std::nullopt, false);
}

Result TorchRunnerBase::evaluate_steps(std::string_view split, std::optional<std::int64_t> steps) {
  initialize();
  const bool demanded = steps.has_value();
  if (!demanded) {
    const auto total = this->steps();
    check<ConfigError>(total.has_value(), "runner.evaluate_steps",
                       "expected a number of batches, got none; pass `steps` or set `steps` in the config");
    steps = std::max<std::int64_t>(*total / 20, 1);
    if (const auto length = loader(split).num_steps()) {
      steps = std::min(*steps, *length);  // caps the default at the length of the split
    }
  }
  check<ConfigError>(*steps >= 0, "runner.evaluate_steps", "expected a number of batches that is not negative, got ",
                     *steps);
  const auto length = loader(split).num_steps();
  check<DataError>(!length || *steps <= *length || !group().alone(), "runner.evaluate_steps", "expected ", *steps,
                   " batches in split ", quote(split), ", got ", length.value_or(0));
  return Internals::Evaluator(*this).evaluate(split, steps, demanded);
}

Result TorchRunnerBase::evaluate(const std::vector<std::string>& requested) {
  initialize();
  const auto names = requested.empty() ? evaluate_splits() : requested;
  for (const auto& name : names) {
    loader(name);  // throws for an unknown name before any evaluation
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

}  // namespace danling::inline v0
