// Inference of a split, batch by batch, or of one batch from the program.
#include <optional>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <danling/runner/torch_runner_base.hpp>

#include <runner/adapters.hpp>
#include <runner/agreement.hpp>
#include <runner/averages.hpp>
#include <runner/evaluator.hpp>
#include <runner/forward_scope.hpp>
#include <runner/services.hpp>
#include <runner/without_gradients.hpp>

namespace danling::inline v0 {
namespace {

/// A warning of predictions in another order than the records, or of fewer; empty without.
std::string order_of(const data::LoaderBase& loader, std::string_view split) {
  const data::LoaderOptions& options = loader.options();
  const auto batches = loader.length(), records = loader.num_samples();
  const bool drops = options.drop_last &&
                     (!batches || !records || *batches * options.batch_size * options.shard.world_size < *records);
  const bool shuffles = options.shuffle && options.sampler == nullptr && options.batch_sampler == nullptr;
  const bool samples =
      options.batch_sampler != nullptr ||
      (options.sampler != nullptr && dynamic_cast<const data::SequentialSampler*>(options.sampler.get()) == nullptr);
  if (!drops && !shuffles && !samples) {
    return {};
  }
  const std::string key = concat("; set dataloader.", split, ".");
  return concat("infer: split ", quote(split),
                shuffles  ? " is shuffled, so are its predictions"
                : samples ? " is in the order of its sampler, so are its predictions"
                          : "",
                shuffles ? concat(key, "shuffle: false") : "", drops && (shuffles || samples) ? "; and it" : "",
                drops ? concat(" lacks the records of a last incomplete batch", key, "drop_last: false") : "");
}

}  // namespace

/// Scope of an inference inside training or evaluation: afterwards restores modes, and generators in training; leaves
/// meters and metrics unchanged.
class TorchRunnerBase::Internals::InferScope {
 public:
  InferScope(TorchRunnerBase& runner, const std::string& split)
      : runner_(runner), averaged_(runner, true), mode_(runner.mode_), split_(std::exchange(runner.split_, split)) {
    runner_.mode_ = RunnerMode::infer;
    runner_.profiled_ = detail::records_ranges();
    runner_.set_training(false);
    Adapters(runner).use_present();
    if (runner_.pass_ != nullptr) {
      generators_.emplace().capture();
    }
  }
  ~InferScope() {
    if (generators_) {
      generators_->restore();
    }
    runner_.mode_ = mode_;
    runner_.split_ = split_;
    if (mode_ == RunnerMode::train && runner_.pass_ != nullptr) {
      runner_.set_training(true);
    }
  }
  InferScope(const InferScope&) = delete;
  InferScope& operator=(const InferScope&) = delete;

 private:
  TorchRunnerBase& runner_;
  Averages::Scope averaged_;
  RunnerMode mode_;
  std::string split_;
  std::optional<RunnerRNGState> generators_;
};

void TorchRunnerBase::infer_on_batch_impl(const std::function<void()>& infer) {
  initialize();
  const Internals::InferScope scope(*this, "infer");
  const detail::WithoutGradients guard(any_script());
  infer();
  services().progress->end_step();
}

detail::InferBatches TorchRunnerBase::begin_infer(std::string_view split, std::optional<std::int64_t> steps,
                                                  bool whole) {
  initialize();
  check<ConfigError>(!whole || steps || loader(split).length(), "runner.infer",
                     "expected a number of batches for split ", quote(split),
                     ", which has no length; pass `steps` or use infer_stream");
  check<ConfigError>(steps.value_or(0) >= 0, "runner.infer", "expected a number of batches that is not negative, got ",
                     steps.value_or(0));
  data::LoaderBase& loader = this->loader(split);
  if (const std::string order = order_of(loader, split);
      !order.empty() && warned_.insert(concat("infer ", split)).second) {
    logger().warning(order);
  }
  if (pass_ == nullptr && host_ == nullptr && !evaluating_) {
    enter(RunnerMode::infer, split);
  }
  return {*this, loader, Internals::Evaluator(*this).visit(split), steps, std::string(split)};
}

bool detail::InferBatches::next(void* prediction) {
  if (steps_ && done_ >= *steps_) {
    return false;
  }
  if (!runner_->is_training()) {  // in training the next step boundary saves and stops
    TorchRunnerBase::Internals::Agreement(*runner_).stop_if_requested_here(/*save=*/false);
  }
  Parallelism& parallelism = runner_->parallelism();
  const TorchRunnerBase::Internals::Averages::Scope averaged(*runner_, true);  // also on ranks that only take part
  if (!parallelism.begin_forward(visit_.next())) {
    visit_.end();
    steps_ = done_;
    return false;
  }
  ForwardScope forward(parallelism);
  ++done_;
  const TorchRunnerBase::Internals::InferScope scope(*runner_, split_);
  const detail::WithoutGradients guard(runner_->any_script());
  runner_->run_infer_step(runner_->current_batch(*loader_), prediction);
  forward.end();
  runner_->services().progress->end_step();
  return true;
}

at::Tensor TorchRunnerBase::joined(const std::vector<at::Tensor>& predictions) {
  return predictions.empty() ? at::empty({0}) : at::cat(predictions);
}

}  // namespace danling::inline v0
