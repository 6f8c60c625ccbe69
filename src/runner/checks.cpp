// Warnings and errors for runs that would otherwise fail silently.
#include <runner/checks.hpp>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <typeinfo>
#include <unordered_set>

#include <c10/util/Type.h>
#include <torch/nn/module.h>

#include <danling/runner/torch_runner_base.hpp>
#include <danling/telemetry/logger.hpp>

#include <distributed/packing.hpp>
#include <runner/agreed_error.hpp>
#include <runner/loop_frame.hpp>
#include <runner/rank_messages.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {
namespace {

std::string described_loop(const std::string& text) {
  const std::size_t end = text.find('\n');
  return concat(quote(text.substr(0, end)), " with [", text.substr(end + 1), "]");
}

bool is_empty(const Result& counts) {
  for (const auto& [name, value] : counts) {
    const auto* number = std::get_if<double>(&value);
    const auto* nested = std::get_if<Result>(&value);
    if ((number != nullptr && *number > 0) || (nested != nullptr && !is_empty(*nested)) ||
        (number == nullptr && nested == nullptr)) {
      return false;
    }
  }
  return true;
}

}  // namespace

void TorchRunnerBase::Internals::Checks::not_training(std::string_view operation) const {
  check<StateError>(!runner_.training_, operation,
                    "expected a call after train() or train_on_batch() has returned or thrown, got one during it");
}

// `dl::run` runs these tools before it trains; another program would ignore the keys and train.
void TorchRunnerBase::Internals::Checks::check_tools_called(std::string_view operation) const {
  const RunnerConfig& config = runner_.config();
  for (const auto& [set, key, call] :
       {std::tuple(config.summary, "summary", "summarize"), std::tuple(config.find_lr.enabled, "find_lr", "find_lr"),
        std::tuple(config.find_batch_size.enabled, "find_batch_size", "find_batch_size")}) {
    check<ConfigError>(!set || runner_.services().called_tools.contains(key), operation, "expected a call of ", call,
                       "() before training with '", key, "' set, got none; dl::run calls it instead of training");
  }
}

void TorchRunnerBase::Internals::Checks::shards(std::string_view operation, bool in_loop_of_runner) const {
  for (const std::string_view axis : {"context", "pipeline"}) {  // batches of a program's loop are not cut
    check<ConfigError>(in_loop_of_runner || runner_.parallelism().axis(axis).size == 1, operation,
                       "expected training by train() with parallel.axes.", axis, " above 1, got a loop of the program");
  }
  if (!runner_.parallelism().computes_shards()) {
    return;
  }
  const auto expect = [&](bool condition, std::string_view expected, std::string_view got) {
    check<ConfigError>(condition, operation, "expected ", expected, " with parallel.virtual_ranks, got ", got);
  };
  const Learner& learner = runner_.learners_.front();
  expect(in_loop_of_runner, "training by train()", "another loop; unset parallel.virtual_ranks for it");
  expect(runner_.learners_.size() == 1 && learner.name.empty(), "one model",
         "`models`, whose updates would come between the shards of a batch");
  expect(!learner.repeats_step, "an optimizer that computes a batch once", "one that evaluates the loss again");
  expect(learner.accum_steps == 1, "accum_steps: 1",
         concat(learner.accum_steps, "; the shards of a process are accumulated anyway: set ", learner.accum_steps,
                " times as many virtual ranks"));
  expect(!runner_.config().log_noise_scale, "no log_noise_scale", "it, which compares parts of a batch by process");
}

std::string TorchRunnerBase::Internals::Checks::kinds_of_metrics() const {
  std::vector<std::string> out;
  const auto add = [&](const std::string& name, const auto* object) {
    if (object != nullptr) {
      out.push_back(concat(name, ": ", c10::demangle(typeid(*object).name())));
    }
  };
  add("metrics", runner_.metrics.get());
  add("train_metrics", runner_.train_metrics.get());
  add("evaluate_metrics", runner_.evaluate_metrics.get());
  add("criterion", runner_.criterion.losses().get());
  add("criterion", runner_.criterion.module().get());
  return join(out);
}

// All ranks read the same list and throw the same error.
void TorchRunnerBase::Internals::Checks::same_loop(std::string_view operation, std::string_view split) const {
  if (runner_.group().alone()) {
    return;
  }
  const auto all = detail::exchange(runner_.group(), concat(split, "\n", kinds_of_metrics()));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) {
      detail::fail_agreed<ConfigError>(true, operation,
                                       "expected the same split and kinds of metrics on all ranks, got ",
                                       described_loop(all[0]), " on rank 0 and ", described_loop(all[rank]),
                                       " on rank ", rank, "; all ranks must make the same calls with the same metrics");
    }
  }
}

// All ranks read the same list and throw the same error.
void TorchRunnerBase::Internals::Checks::same_data(const Splits& splits) const {
  if (runner_.group().alone()) {
    return;
  }
  std::vector<std::string> names = splits.train;
  names.insert(names.end(), splits.evaluate.begin(), splits.evaluate.end());
  detail::Packer mine;
  mine.text(join(names));
  mine.text(kinds_of_metrics());
  for (const std::string& name : names) {
    const data::LoaderBase* loader = runner_.find_loader(name);
    const bool shared = loader != nullptr && loader->options().shard.world_size > 1;
    mine.number(shared ? loader->num_samples().value_or(-1) : -1);
  }
  const auto all = detail::exchange(runner_.group(), mine.take());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    detail::Unpacker first(all[0]), theirs(all[rank]);
    const auto check_text = [&](const char* what, const char* advice) {
      const std::string of_first = first.text(), own = theirs.text();
      if (of_first != own) {
        detail::fail_agreed<ConfigError>(true, "runner.train", "expected ", what, " on all ranks, got [", of_first,
                                         "] on rank 0 and [", own, "] on rank ", rank, "; ", advice);
      }
    };
    check_text("the same splits", "set the same datasets in every process");
    check_text("the same kinds of metrics", "set the same metrics and losses in every process");
    for (const std::string& name : names) {
      const std::int64_t of_first = first.number(), own = theirs.number();
      if (of_first != own) {
        detail::fail_agreed<ConfigError>(true, "runner.train", "expected the same number of samples in split ",
                                         quote(name), " on all ranks, since each rank reads a part of them, got ",
                                         of_first, " on rank 0 and ", own, " on rank ", rank,
                                         "; give every process the whole dataset");
      }
    }
  }
}

void TorchRunnerBase::Internals::Checks::trainable(const Splits& splits) const {
  if (splits.train.empty()) {
    std::vector<std::string> names;
    for (const SplitInfo& split : runner_.splits()) {
      names.push_back(quote(split.name));
    }
    fail<ConfigError>("runner.train", "expected a training split, got ",
                      names.empty() ? "no datasets" : concat("none among the datasets ", join(names)),
                      "; set datasets[\"train\"], or name one in train_splits");
  }
  check<ConfigError>(runner_.steps() || runner_.epochs(), "runner.train",
                     "expected a number of steps, got none; set `steps` or `epochs` in the config");
  for (const auto* names : {&splits.train, &splits.evaluate}) {
    for (const auto& name : *names) {
      check<StateError>(runner_.find_loader(name) != nullptr, "runner.train", "expected the dataset of split ",
                        quote(name), " to be set before initialize(), got it later");
    }
  }
  if (runner_.config().evaluate_interval && splits.evaluate.empty() && runner_.warned_.insert("interval").second) {
    runner_.logger().warning("evaluate_interval has no effect without a split to evaluate");
  }
  for (const auto& names : {runner_.evaluate_splits(), runner_.test_splits()}) {
    for (const auto& name : names) {
      if (runner_.config().dataloader.for_split(name).drop_last.value_or(false) && runner_.split_length(name) == 0 &&
          runner_.warned_.insert(concat("empty ", name)).second) {
        runner_.logger().warning(
            concat("split ", quote(name),
                   " has no batch: it has fewer records than a batch of all processes, and "
                   "drop_last leaves them out; lower batch_size, or set dataloader.drop_last: false"));
      }
    }
  }
  if (runner_.config().test_with == "best" && (runner_.test_splits().empty() || !runner_.score_split()) &&
      runner_.warned_.insert("test_with").second) {
    runner_.logger().warning(runner_.test_splits().empty()
                                 ? "test_with: best has no effect without test_splits"
                                 : "test_with: best has no effect without a split to evaluate, whose score it reads");
  }
  if (std::isfinite(runner_.config().patience) && runner_.warned_.insert("patience").second) {
    if (runner_.is_step_mode() && !runner_.config().evaluate_interval) {
      runner_.logger().warning("patience has no effect by `steps` unless evaluate_interval is set");
    } else if (splits.evaluate.empty()) {
      runner_.logger().warning("patience has no effect without a split to evaluate, whose score it watches");
    }
  }
}

void TorchRunnerBase::Internals::Checks::numbers(const detail::LoopFrame& frame, const Result& averages) {
  runner_.synchronize_counters();
  const double* loss = averages.number("loss");
  // The policy checks the loss of an open window at the end of the window.
  const bool judged = runner_.loss_policy_ != nullptr && !runner_.is_settled();
  if (loss != nullptr && !std::isfinite(*loss) && !judged) {
    const std::string place =
        concat("split ", quote(frame.split()), ", epoch ", runner_.state_.train.epoch + (runner_.at_boundary() ? 0 : 1),
               ", by step ", runner_.state_.train.global_step);
    if (runner_.mode_ == RunnerMode::train && runner_.config().on_nonfinite == "stop") {
      detail::fail_agreed<NonFiniteError>(runner_.joins_updates_, "runner.loss", "expected a finite loss, got ", *loss,
                                          " in ", place, " (on_nonfinite: stop); earlier checkpoints are intact");
    }
    if (runner_.warned_.insert(concat("loss ", frame.split(), runner_.state_.train.epoch)).second) {
      runner_.logger().warning(
          concat("the loss is not finite: ", *loss, " in ", place,
                 runner_.mode_ == RunnerMode::train ? "; set on_nonfinite: stop to end such a run" : ""));
    }
  }
  schedules();
  if (runner_.skipped_updates_ > runner_.skips_logged_) {
    const RunnerConfig& config = runner_.config();
    const auto scaled = std::find_if(runner_.learners_.begin(), runner_.learners_.end(),
                                     [](const Learner& learner) { return learner.scaler != nullptr; });
    const double scale = scaled == runner_.learners_.end() ? 0.0 : scaled->scaler->get_scale();
    std::string policy = config.skip_nonfinite_grad      ? "skip_nonfinite_grad"
                         : scale > 0                     ? concat("the loss scale is now ", scale)
                         : config.on_nonfinite == "skip" ? "on_nonfinite: skip"
                                                         : "";
    const char* reason = "gradients were not finite: ";
    if (config.spike.action == "skip") {
      reason = policy.empty() ? "the loss spiked: " : "";
      policy += policy.empty() ? "spike.action: skip" : ", spike.action: skip";
    }
    const std::string text =
        concat(reason, runner_.skipped_updates_ - runner_.skips_logged_, " updates were skipped by step ",
               runner_.state_.train.global_step, ", ", runner_.skipped_updates_, " in all (", policy, ")");
    if (scale >= 1) {
      runner_.logger().info(text);  // normal while the scale adapts
    } else {
      runner_.logger().warning(text);
    }
    runner_.skips_logged_ = runner_.skipped_updates_;
  }
}

// Called at the end of a training pass: without an update a run could continue for days and train nothing.
void TorchRunnerBase::Internals::Checks::models_updated(std::string_view split) {
  for (const Learner& learner : runner_.learners_) {
    if (runner_.learners_.size() > 1 && learner.updates == 0 && learner.skipped == 0 &&
        runner_.warned_.insert(concat("updates ", learner.name)).second) {
      const std::string call = learner.name.empty() ? "" : concat("\"", learner.name, "\"");
      runner_.logger().warning(
          concat(learner.name.empty() ? "`model`" : concat("model ", quote(learner.name)), " was not updated in split ",
                 quote(split), "; call backward(loss", call.empty() ? "" : concat(", ", call), ") and step(", call,
                 ") in train_step",
                 call.empty() ? "" : concat(", or set optimizers[", call, "] = nullptr where it is not trained")));
    }
  }
}

// An optimizer holds the parameters that required gradients when it was made. One that leaves out parameters from the
// beginning does so on purpose.
void TorchRunnerBase::Internals::Checks::parameters_trained() {
  if (!runner_.is_single_process_ || runner_.computes_shards_) {
    return;
  }
  std::unordered_set<const c10::TensorImpl*> held;
  for (const Learner& learner : runner_.learners_) {
    for (const auto& group : learner.optimizer->param_groups()) {
      for (const at::Tensor& parameter : group.params) {
        held.insert(parameter.unsafeGetTensorImpl());
      }
    }
  }
  std::vector<std::string> names;
  for (const Learner& learner : runner_.learners_) {
    const ModelHandle& model = learner.name.empty() ? runner_.model : runner_.models.at(learner.name);
    for (const auto& [name, parameter] : model.named_parameters()) {
      if (parameter.requires_grad() && !held.contains(parameter.unsafeGetTensorImpl())) {
        names.push_back(concat(learner.name, learner.name.empty() ? "" : ".", name));
      }
    }
  }
  const auto count = static_cast<std::int64_t>(names.size());
  if (runner_.services().untrained >= 0 && count > runner_.services().untrained &&
      runner_.warned_.insert("untrained").second) {
    runner_.logger().warning(concat(
        count, " parameters require gradients and are in no optimizer, ", count - runner_.services().untrained,
        " of them since training began, such as ", quote(names.back()),
        ": they are not trained. An optimizer holds the parameters that required gradients when it was made: to train "
        "them later, freeze them by requires_grad_(false) in on_round_begin, not by optim.freeze; do not replace a "
        "model"));
  }
  runner_.services().untrained = count;
}

void TorchRunnerBase::Internals::Checks::schedules() {
  for (const Learner& learner : runner_.learners_) {
    if (learner.scheduler != nullptr && learner.scheduler->is_finished() &&
        runner_.warned_.insert(concat("schedule ", learner.name)).second) {
      const std::string section = learner.name.empty() ? "sched" : concat("sched.", learner.name);
      runner_.logger().warning(concat("the learning rate schedule ended at step ", runner_.state_.train.global_step,
                                      "; training continues with ", learner.optimizer->param_groups().front().lr,
                                      "; set ", section, ".total_steps to the length of the run"));
    }
  }
}

void TorchRunnerBase::Internals::Checks::metrics_fed(detail::LoopFrame& frame) {
  const bool lacks_targets = frame.lacks_targets();
  const bool unfed = runner_.active_metrics_ != nullptr && is_empty(runner_.active_metrics_->count());
  if ((!lacks_targets && !unfed) || !runner_.warned_.insert(concat("metrics ", runner_.split_)).second) {
    return;
  }
  if (lacks_targets) {
    runner_.logger().warning(concat("no target of split ", quote(runner_.split_),
                                    " counts (ignore_index), so its loss and metrics have no values; check the labels "
                                    "of its dataset"));
  } else {
    runner_.logger().warning(concat("the metrics of split ", quote(runner_.split_),
                                    " received no values; call update_metrics in your ",
                                    runner_.mode_ == RunnerMode::train ? "train_step" : "evaluate_step",
                                    ", or, without one, give the batches a target"));
  }
}

void TorchRunnerBase::Internals::Checks::loss_returned(detail::LoopFrame& frame) {
  const bool has_metrics = runner_.active_metrics_ != nullptr && !is_empty(runner_.active_metrics_->count());
  if (runner_.mode_ != RunnerMode::train || has_metrics || !frame.lacks_loss()) {
    return;
  }
  const auto is_rate = [&](std::string_view name) {
    return name == "lr" || std::any_of(runner_.learners_.begin(), runner_.learners_.end(),
                                       [&](const Learner& learner) { return name == concat("lr_", learner.name); });
  };
  for (const auto& [name, meter] : runner_.meters) {
    if (meter.count() > 0 && !is_rate(name)) {
      return;
    }
  }
  if (runner_.warned_.insert(concat("no loss ", runner_.split_)).second) {
    runner_.logger().warning(concat("train_step returned no loss in split ", quote(runner_.split_),
                                    ", and updated no meter; return {.prediction = ..., .loss = loss}"));
  }
}

void TorchRunnerBase::Internals::Checks::loss_weighted(const detail::LoopFrame& frame) {
  if (!frame.averages_unevenly() || !runner_.warned_.insert(concat("uneven ", runner_.split_)).second) {
    return;
  }
  const auto [least, most] = frame.batch_sizes();
  runner_.logger().warning(concat(
      "the loss of split ", quote(runner_.split_), " is an average over its batches, which have ", least, " to ", most,
      " samples and count alike: nothing says what a loss of the step averages over; use a loss of LibTorch or "
      "dl::Losses as `criterion`, or give batches a loss_normalizer"));
}

}  // namespace danling::inline v0
