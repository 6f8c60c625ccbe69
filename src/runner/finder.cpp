#include <runner/finder.hpp>

#include <cmath>
#include <cstring>

#include <danling/distributed/group.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/agreement.hpp>
#include <runner/checks.hpp>
#include <runner/flag_scope.hpp>
#include <runner/host_loop.hpp>
#include <runner/rank_messages.hpp>
#include <runner/restorer.hpp>
#include <runner/snapshot.hpp>
#include <runner/step_tapes.hpp>
#include <runner/train_pass.hpp>
#include <runner/training.hpp>
#include <runner/windows.hpp>

namespace danling::inline v0 {

struct TorchRunnerBase::Internals::Finder::Before {
  LoopState loop;
  detail::Measurements saved_measurements, measurements;
  RunnerMode mode;
  std::string split;
  MetricsBase* active_metrics;
  State parallelism;
  std::vector<Learner> learners;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> learner_counts;
  std::int64_t accum_span, step_number, skips_logged;
  std::set<std::string, std::less<>> warned;
  std::optional<std::string> end, ended;
  bool evaluation, save, has_partial_step;
  std::vector<detail::SaveCall> deferred_saves;
};

TorchRunnerBase::Internals::Finder::Finder(TorchRunnerBase& runner, std::string_view operation)
    : runner_(runner), operation_(operation) {
  Checks(runner).not_training(operation);
  runner.initialize();
  check<StateError>(runner.host_ == nullptr && !runner.evaluating_ && runner.pass_ == nullptr, operation,
                    "expected no training or evaluation in progress, got one; call it before the first batch or after "
                    "finish_training()");
  Checks(runner).shards(operation, /*in_loop_of_runner=*/false);
  for (const std::string& split : runner.train_splits()) {
    loaders_.emplace_back(split, &runner.loader(split));
  }
  check<ConfigError>(!loaders_.empty(), operation, "expected a training split, got none");
}

void TorchRunnerBase::Internals::Finder::run(const std::function<void()>& work) {
  // On the host, so that it takes no memory of the device.
  state_ = clone(runner_.state_dict(), at::kCPU);
  const auto& requests = runner_.requests_;
  const auto& services = runner_.services();
  before_ = std::make_shared<Before>(Before{.loop = runner_.loop_,
                                            .saved_measurements = runner_.saved_measurements_,
                                            .measurements = Snapshot(runner_).copied_measurements(),
                                            .mode = runner_.mode_,
                                            .split = runner_.split_,
                                            .active_metrics = runner_.active_metrics_,
                                            .parallelism = clone(runner_.parallelism().state_dict(), at::kCPU),
                                            .learners = runner_.learners_,
                                            .learner_counts = runner_.learner_counts_,
                                            .accum_span = runner_.accum_span_,
                                            .step_number = runner_.step_number_,
                                            .skips_logged = runner_.skips_logged_,
                                            .warned = runner_.warned_,
                                            .end = requests.end,
                                            .ended = requests.ended,
                                            .evaluation = requests.evaluation,
                                            .save = requests.save,
                                            .has_partial_step = services.has_partial_step,
                                            .deferred_saves = services.deferred_saves});
  const StepTapes::EagerScope eager(runner_);
  try {
    const detail::FlagScope call(runner_.training_);
    Training(runner_).prepare_steps();
    for (Learner& learner : runner_.learners_) {  // the finder reads numbers at every update
      learner.watches_loss = learner.reads_flags_late = false;
      learner.stats.reset();
    }
    runner_.enter(RunnerMode::train, loaders_.front().first);
    Windows(runner_).drop();
    runner_.meters["loss"];  // meters keep the order of their first use, and a loop begins with this one
    work();
  } catch (...) {
    runner_.loss_probe_ = nullptr;
    try {
      Training(runner_).rethrow(/*began=*/false);
    } catch (...) {
      restore();
      throw;
    }
  }
  runner_.loss_probe_ = nullptr;
  restore();
  Agreement(runner_).stop_if_requested(/*save=*/false, stopped_);
}

void TorchRunnerBase::Internals::Finder::restore() {
  end_reading();
  Windows(runner_).drop();
  Restorer(runner_).rewind(state_);
  Before& before = *before_;
  runner_.parallelism().load_state_dict(before.parallelism);
  auto& requests = runner_.requests_;
  auto& services = runner_.services();
  runner_.loop_ = std::move(before.loop);
  runner_.saved_measurements_ = std::move(before.saved_measurements);
  runner_.mode_ = before.mode;
  runner_.split_ = std::move(before.split);
  runner_.set_training(before.mode == RunnerMode::train);
  runner_.active_metrics_ = before.active_metrics;
  runner_.predicted_metrics_ = dynamic_cast<Metrics*>(before.active_metrics);
  runner_.meters.reset();
  Snapshot(runner_).restore(before.measurements);
  runner_.bind_typed_components();
  runner_.learners_ = std::move(before.learners);
  runner_.learner_ = runner_.learners_.empty() ? nullptr : &runner_.learners_.front();
  runner_.learner_counts_ = std::move(before.learner_counts);
  runner_.gradient_accumulators_.clear();
  runner_.accum_span_ = before.accum_span;
  runner_.step_number_ = before.step_number;
  runner_.skips_logged_ = before.skips_logged;
  runner_.warned_ = std::move(before.warned);
  requests.end = std::move(before.end);
  requests.ended = std::move(before.ended);
  requests.evaluation = before.evaluation;
  requests.save = before.save;
  services.has_partial_step = before.has_partial_step;
  services.deferred_saves = std::move(before.deferred_saves);
  state_ = State();
  before_.reset();
}

// ---- data -----------------------------------------------------------------------------------------------------------

void TorchRunnerBase::Internals::Finder::read(
    std::vector<std::pair<std::string, std::shared_ptr<data::LoaderBase>>> loaders) {
  end_reading();
  own_loaders_ = std::move(loaders);
  loaders_.clear();
  for (const auto& [split, loader] : own_loaders_) {
    loaders_.emplace_back(split, loader.get());
  }
}

void TorchRunnerBase::Internals::Finder::end_reading() {
  visit_.reset();
  split_ = 0;
  epoch_ = runner_.state_.train.epoch;
  if (!own_loaders_.empty()) {
    loaders_.clear();
    own_loaders_.clear();
  }
}

data::LoaderBase& TorchRunnerBase::Internals::Finder::next_batch() {
  for (std::size_t empty = 0; empty <= loaders_.size(); ++empty) {
    if (!visit_) {
      runner_.split_ = loaders_[split_].first;
      visit_.emplace(*loaders_[split_].second, epoch_, /*keep=*/true);
    }
    if (visit_->next()) {
      return *loaders_[split_].second;
    }
    visit_.reset();
    split_ = (split_ + 1) % loaders_.size();
    epoch_ += split_ == 0 ? 1 : 0;
  }
  fail<DataError>(operation_, "expected batches in split ", quote(loaders_[split_].first), ", got none");
}

// ---- updates --------------------------------------------------------------------------------------------------------

Learner& TorchRunnerBase::Internals::Finder::select(const std::string& name) {
  auto& learners = runner_.learners_;
  const bool only = name.empty() && learners.size() == 1;
  if (name.empty() && !only && !learners.front().name.empty()) {
    std::vector<std::string> names;
    for (const Learner& learner : learners) {
      names.push_back(learner.name);
    }
    fail<ConfigError>(operation_, "expected find_lr.model with one of the models [", join(names), "], got none");
  }
  Learner& found = only ? learners.front() : Windows(runner_).find(name, operation_);
  if (!found.name.empty()) {
    probe_ = detail::LossProbe{.model = found.name};
    runner_.loss_probe_ = &*probe_;
  }
  return found;
}

TorchRunnerBase::Internals::Finder::Update TorchRunnerBase::Internals::Finder::update() {
  Update out;
  at::Tensor sum;
  double weight = 0.0;
  do {
    data::LoaderBase& loader = next_batch();
    const MicroBatch micro_batch{runner_.current_batch(loader), loader.batch_size(),
                                 /*last=*/!runner_.joins_updates_ && loader.is_last()};
    const auto normalizer = runner_.count_batch(micro_batch.batch).loss_normalizer;
    const OpenStep step = TrainPass(runner_).run_step(micro_batch, normalizer);
    const at::Tensor loss = probe_ ? probe_->take() : step.loss;
    check<StateError>(loss.defined() || (probe_ && runner_.learners_.size() > 1), operation_,
                      "expected a loss from train_step, got none");
    const auto count = static_cast<double>(normalizer.value_or(1));
    if (loss.defined() && count > 0) {
      const at::Tensor part = loss.detach().to(at::kDouble).reshape({}).mul(count);
      sum = sum.defined() ? sum.add(part) : part;
      weight += count;
    }
    out.samples += micro_batch.samples;
    out.updated = out.updated || step.updated;
    if (step.agreed.stop) {
      stopped_ = step.agreed;
    }
  } while (!runner_.is_settled());
  out.loss = sum.defined() ? sum.item<double>() : 0.0;  // synchronizes with the device
  combine(out, weight);
  return out;
}

// All ranks continue with the same numbers.
void TorchRunnerBase::Internals::Finder::combine(Update& update, double weight) const {
  if (!runner_.group().alone()) {
    struct Part {
      double loss, weight;
      std::int64_t updated;
    };
    const Part mine{update.loss, weight, update.updated ? 1 : 0};
    update.loss = weight = 0.0;
    for (const std::string& bytes :
         detail::exchange(runner_.group(), {reinterpret_cast<const char*>(&mine), sizeof mine})) {
      Part other{};
      std::memcpy(&other, bytes.data(), sizeof other);
      update.loss += other.loss;
      weight += other.weight;
      update.updated = update.updated || other.updated != 0;
    }
  }
  update.loss = weight > 0 ? update.loss / weight : std::nan("");
}

}  // namespace danling::inline v0
