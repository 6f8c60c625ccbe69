#include <runner/loss_policy.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <danling/checkpoint/io.hpp>
#include <danling/checkpoint/manager.hpp>
#include <danling/telemetry/logger.hpp>
#include <danling/workspace/workspace.hpp>

#include <runner/agreed_error.hpp>
#include <runner/saver.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {
namespace {

constexpr double default_threshold = 6.0;
constexpr std::int64_t default_window = 100;
constexpr std::int64_t default_rollbacks = 3;
constexpr double least_deviation = 0.01;  // relative to the mean: a constant loss has no deviation

bool rolls_back(const RunnerConfig& config) {
  return config.spike.action == "rollback" || config.on_nonfinite == "rollback";
}

bool keeps_batches(const RunnerConfig& config) {
  return rolls_back(config) || config.spike.action == "stop" || config.on_nonfinite == "stop";
}

}  // namespace

bool TorchRunnerBase::Internals::LossPolicy::judges(const RunnerConfig& config) {
  return config.spike.action || config.on_nonfinite == "stop" || config.on_nonfinite == "rollback";
}

void TorchRunnerBase::Internals::LossPolicy::prepare(bool hosted) {
  const RunnerConfig& config = runner_.config();
  check<ConfigError>(!hosted || !rolls_back(config), "runner.train_on_batch", "expected ",
                     config.on_nonfinite == "rollback" ? "on_nonfinite" : "spike.action",
                     " warn, skip or stop in a loop of the program, whose batches no roll-back can repeat, got "
                     "rollback");
  reset();
}

void TorchRunnerBase::Internals::LossPolicy::reset() {
  state_.batches.clear();
  state_.bad.reset();
  state_.first = runner_.state_.train.micro_step;
  for (Learner& learner : runner_.learners_) {
    learner.loss_sum = at::Tensor();
  }
}

void TorchRunnerBase::Internals::LossPolicy::keep_beginning() {
  // A process that has trained before may have gone back before its first checkpoint; a resumed process may have
  // skipped parts of its checkpoint.
  const bool differs = state_.has_trained || !runner_.config().checkpoint.exclude_from_loading.empty();
  if (rolls_back(runner_.config()) && (differs || runner_.state_.train.micro_step == 0)) {
    const auto ranks = Saver(runner_).gather_rank_states();
    const auto exposed = runner_.gather_checkpoint_state(/*writes=*/false);
    state_.initial = clone(runner_.state_dict());
    state_.saves = runner_.checkpoint_manager().checkpoint_health().success_count;
  }
  state_.has_trained = true;
}

void TorchRunnerBase::Internals::LossPolicy::begin_anew(const State& point) {
  state_.initial.reset();
  if (rolls_back(runner_.config()) && point.is_map()) {
    state_.initial = clone(point);
    state_.saves = runner_.checkpoint_manager().checkpoint_health().success_count;
  }
  state_.has_trained = true;
}

bool TorchRunnerBase::Internals::LossPolicy::passes_over(std::int64_t micro_step) const {
  return std::any_of(state_.passed_over.begin(), state_.passed_over.end(),
                     [&](const auto& range) { return micro_step >= range.first && micro_step < range.second; });
}

void TorchRunnerBase::Internals::LossPolicy::drop_beginning() {
  if (state_.initial && runner_.checkpoint_manager().checkpoint_health().success_count > state_.saves) {
    state_.initial.reset();
  }
}

void TorchRunnerBase::Internals::LossPolicy::begin_micro_batch(const MicroBatch& micro_batch) {
  drop_beginning();
  if (keeps_batches(runner_.config())) {
    // Shares the tensors: those of a window live until its update.
    state_.batches.push_back(
        {.batch = runner_.batch_state(micro_batch.batch),
         .indices = micro_batch.info != nullptr ? micro_batch.info->indices : std::vector<std::int64_t>(),
         .iteration = runner_.loop_.iteration,
         .loss = {}});
  }
}

void TorchRunnerBase::Internals::LossPolicy::add_loss(Learner& learner, const at::Tensor& loss, double weight) {
  const at::Tensor value = loss.detach().reshape({}).to(at::kDouble);
  learner.loss_sum = learner.loss_sum.defined() ? learner.loss_sum.add(value, weight) : value.mul(weight);
  if (!state_.batches.empty()) {
    at::Tensor& kept = state_.batches.back().loss;
    kept = kept.defined() ? kept.add(value) : value;
  }
}

bool TorchRunnerBase::Internals::LossPolicy::judge(Learner& learner, const at::Tensor& found_inf) {
  const RunnerConfig& config = runner_.config();
  at::Tensor sum = std::exchange(learner.loss_sum, at::Tensor());
  sum = sum.defined() ? sum : at::zeros({}, at::kDouble);
  // Overflowing gradients are handled by the loss scale.
  at::Tensor flag = found_inf.defined() && learner.scaler == nullptr ? found_inf.detach().reshape({}).to(at::kDouble)
                                                                     : at::zeros({}, at::kDouble);
  const at::Tensor numbers = at::stack({sum, flag.to(sum.device())}).cpu();  // synchronizes with the device
  const double samples = learner.window.total();
  StepPacket packet{.nonfinite = numbers[1].item().toDouble() != 0,
                    .loss = samples > 0 ? numbers[0].item().toDouble() * samples / learner.window.divisor() : 0.0,
                    .loss_weight = samples};
  if (!runner_.is_single_process_) {
    if (runner_.parallelism().sums_gradients()) {
      // `samples` counts all ranks, and each sample has one reporting rank.
      packet.loss_weight /= static_cast<double>(runner_.parallelism().num_reporting_ranks());
    }
    packet = runner_.parallelism().exchange_packets(packet);
  }
  if (packet.loss_weight == 0) {
    return false;  // no rank had a valid target
  }
  packet.loss /= packet.loss_weight;
  const bool finite = std::isfinite(packet.loss);
  if (!finite || packet.nonfinite) {
    return act(config.on_nonfinite, "on_nonfinite",
               finite ? concat("expected finite gradients, got non-finite ones at loss ", packet.loss)
                      : concat("expected a finite loss, got ", packet.loss),
               packet);
  }
  if (config.spike.action) {
    if (const auto reason = spike_reason(learner, packet.loss)) {
      return act(*config.spike.action, "spike.action", *reason, packet);
    }
  }
  return false;
}

// The loss is a spike if it exceeds the mean of the last updates by `threshold` standard deviations. A spike enters
// these statistics as the limit, so that the policy accepts a lasting change after some updates.
std::optional<std::string> TorchRunnerBase::Internals::LossPolicy::spike_reason(const Learner& learner, double loss) {
  const SpikeConfig& spike = runner_.config().spike;
  const double threshold = spike.threshold.value_or(default_threshold);
  const auto window = static_cast<std::size_t>(spike.window.value_or(default_window));
  std::deque<double>& losses = state_.losses[learner.name];
  while (losses.size() > window) {  // after a run with a longer window
    losses.pop_front();
  }
  std::optional<std::string> reason;
  double entry = loss;
  if (losses.size() >= window) {
    const auto count = static_cast<double>(losses.size());
    const double mean = std::accumulate(losses.begin(), losses.end(), 0.0) / count;
    const double squares = std::accumulate(losses.begin(), losses.end(), 0.0, [mean](double sum, double value) {
      return sum + (value - mean) * (value - mean);
    });
    const double deviation = std::max(std::sqrt(squares / count), least_deviation * std::abs(mean));
    const double limit = mean + threshold * deviation;
    if (loss > limit) {
      entry = limit;
      reason = concat("expected a loss of at most ", limit, " (the mean of ", losses.size(), " updates, ", mean,
                      ", and ", threshold, " standard deviations of ", deviation, "), got ", loss);
    }
    losses.pop_front();
  }
  losses.push_back(entry);
  return reason;
}

std::string TorchRunnerBase::Internals::LossPolicy::place() const {
  return concat(" in split ", quote(runner_.split_), ", epoch ", runner_.state_.train.epoch + 1, ", after step ",
                runner_.state_.train.global_step);
}

bool TorchRunnerBase::Internals::LossPolicy::act(std::string action, const std::string& key, const std::string& reason,
                                                 const StepPacket& all) {
  if (action == "rollback" && all.exhausted && !runner_.parallelism().sums_gradients()) {
    action = "stop";  // a rank that has ended its pass cannot roll back alone
  }
  const std::string policy = concat(" (", key, ": ", action, ")");
  if (action == "warn") {
    if (key == "on_nonfinite") {
      return false;  // log lines warn
    }
    runner_.logger().warning(concat("the loss spikes: ", reason, place(), policy));
    return false;
  }
  if (action == "skip") {
    runner_.logger().warning(concat("the update is skipped: ", reason, place(), policy));
    return true;
  }
  if (!state_.bad) {
    state_.bad = detail::BadWindow{action, key, concat(reason, place(), policy), all.loss};
  }
  return true;
}

void TorchRunnerBase::Internals::LossPolicy::settle() {
  const std::int64_t next = runner_.state_.train.micro_step;
  if (!state_.bad) {
    state_.batches.clear();
    state_.first = next;
    return;
  }
  const detail::BadWindow bad = *std::exchange(state_.bad, std::nullopt);
  const std::int64_t allowed = runner_.config().max_rollbacks.value_or(default_rollbacks);
  if (bad.action == "rollback" && state_.rollbacks < allowed) {
    runner_.logger().warning(concat("rolls back: ", bad.reason));
    state_.batches.clear();
    state_.passed_over.emplace_back(state_.first, next);
    ++state_.rollbacks;
    throw detail::RollBack();
  }
  state_.bad = bad;
  const std::string file = save_batches();
  state_.bad.reset();
  state_.batches.clear();
  detail::fail_agreed<NonFiniteError>(
      runner_.joins_updates_, "runner.loss", bad.reason,
      bad.action == "rollback" ? concat(" after ", allowed, " roll-backs (max_rollbacks)") : "",
      file.empty() ? "" : concat("; its batch is in ", file), "; earlier checkpoints are intact");
}

// Python: torch.load(file). One file per rank.
std::string TorchRunnerBase::Internals::LossPolicy::save_batches() const {
  if (!runner_.config().record) {
    return "";
  }
  const auto& train = runner_.state_.train;
  State::List batches;
  for (const auto& item : state_.batches) {
    State entry;
    entry["iteration"] = item.iteration;
    entry["indices"] = item.indices.empty() ? State() : State(at::tensor(item.indices, at::kLong));
    entry["loss"] = item.loss.defined() ? State(item.loss.item().toDouble()) : State();
    entry["batch"] = item.batch;
    batches.push_back(std::move(entry));
  }
  State out;
  out["reason"] = state_.bad->reason;
  out["loss"] = state_.bad->loss;
  out["split"] = runner_.split_;
  out["epoch"] = train.epoch;
  out["global_step"] = train.global_step;
  out["micro_step"] = state_.first;
  out["micro_batches"] = std::move(batches);
  const auto file =
      runner_.workspace().dir() / "bad_batches" /
      concat("step-", train.global_step, runner_.distributed() ? concat("-rank-", runner_.rank()) : "", ".pth");
  try {
    return danling::save(out, file).string();
  } catch (const Error& error) {
    runner_.logger().warning(error.what());  // the caller throws the error of the loss
    return "";
  }
}

}  // namespace danling::inline v0
