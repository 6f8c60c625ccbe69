// Batch normalization statistics for SWA: no training step has computed them.
#include <algorithm>

#include <danling/optim/batch_norm_statistics.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/agreement.hpp>
#include <runner/averages.hpp>
#include <runner/evaluator.hpp>
#include <runner/watchdog.hpp>
#include <runner/watched_loop.hpp>
#include <runner/without_gradients.hpp>

namespace danling::inline v0 {
namespace {

/// Lets evaluation use averages whose statistics are being estimated.
class Estimating {
 public:
  explicit Estimating(std::vector<detail::AveragesOfModel*> models) : models_(std::move(models)) { set(true); }
  ~Estimating() { set(false); }
  Estimating(const Estimating&) = delete;
  Estimating& operator=(const Estimating&) = delete;

 private:
  void set(bool on) {
    for (auto* model : models_) {
      model->estimating = on;
    }
  }
  std::vector<detail::AveragesOfModel*> models_;
};

}  // namespace

void TorchRunnerBase::Internals::Averages::estimate_statistics() {
  if (runner_.averages_ == nullptr || runner_.averages_->disabled) {
    return;
  }
  std::vector<detail::AveragesOfModel*> stale;
  std::vector<const ModelHandle*> handles;
  for (auto& [name, averages] : all().models) {
    if (averages.needs_statistics && averages.swa->has_average() && !averages.has_statistics) {
      stale.push_back(&averages);
      handles.push_back(name.empty() ? &runner_.model : &runner_.models.at(name));
    }
  }
  if (stale.empty()) {
    return;
  }
  const auto splits = runner_.train_splits();
  if (splits.empty() || runner_.find_loader(splits.front()) == nullptr) {
    if (runner_.warned_.insert("swa statistics").second) {
      runner_.logger().warning(
          "runner.averages: expected training data to estimate batch normalization's statistics for swa, got none, so "
          "that evaluation does not use the average; set swa.update_bn to false to use it with those of the model");
    }
    return;
  }
  RunnerRNGState generators;  // dropout draws from them
  generators.capture();
  const Estimating estimating(stale);
  const Scope scope(runner_, true);
  std::vector<torch::nn::Module*> modules;
  for (const ModelHandle* handle : handles) {
    modules.push_back(handle->module().get());
  }
  optim::BatchNormStatistics statistics(modules);
  std::int64_t batches = 0;
  for (const auto& split : splits) {
    batches += pass(split, handles);
  }
  statistics.finish(runner_.group());
  for (auto* averages : stale) {
    averages->has_statistics = true;
  }
  generators.restore();
  runner_.logger().info(concat("swa: estimated the statistics of batch normalization over ", batches, " batches"));
}

std::int64_t TorchRunnerBase::Internals::Averages::batch_limit(const data::LoaderBase& loader) const {
  // One pass estimates the statistics of all models.
  std::int64_t batches = 0;
  bool limited = true;
  for (const auto& [name, averages] : runner_.averages_->models) {
    if (averages.estimating) {
      batches = std::max(batches, averages.swa_options.bn_batches.value_or(0));
      limited = limited && averages.swa_options.bn_batches;
    }
  }
  if (limited) {
    return batches;
  }
  return loader.length().value_or(std::max<std::int64_t>(runner_.steps().value_or(0) / 20, 1));
}

std::int64_t TorchRunnerBase::Internals::Averages::pass(const std::string& split,
                                                        const std::vector<const ModelHandle*>& handles) {
  data::LoaderBase& loader = runner_.loader(split);
  const std::int64_t limit = batch_limit(loader);
  runner_.enter(RunnerMode::evaluate, split);
  for (const ModelHandle* handle : handles) {
    handle->train(true);
  }
  data::LoaderVisit visit = Evaluator(runner_).visit(split);
  std::int64_t done = 0;
  const auto next = [&] {
    if (runner_.watched_ != nullptr) {
      WatchedLoop::mark_reading(runner_, done);
    }
    return visit.next();
  };
  while (done < limit && next()) {
    if (runner_.watched_ != nullptr) {
      WatchedLoop::mark_computing(runner_, done);
    }
    const detail::WithoutGradients guard(runner_.any_script());
    runner_.run_evaluate_step(runner_.current_batch(loader));
    if (runner_.watched_ != nullptr) {
      runner_.watched_->end_step();
    }
    ++done;
    if (runner_.group().alone() && (runner_.saves_on_stop_ || !runner_.is_training())) {
      Agreement(runner_).stop_if_requested_here(/*save=*/runner_.saves_on_stop_);
    }
  }
  visit.end();
  return done;
}

}  // namespace danling::inline v0
