#include <runner/loop_frame.hpp>

#include <chrono>
#include <cmath>
#include <cstring>

#include <c10/core/CachingDeviceAllocator.h>

#include <danling/metrics/metrics.hpp>
#include <danling/telemetry/logger.hpp>

#include <runner/checks.hpp>
#include <runner/gradients.hpp>
#include <runner/rank_messages.hpp>
#include <runner/rank_times.hpp>
#include <runner/services.hpp>
#include <telemetry/memory.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::chrono::seconds quiet(5);

// Resets the peak of a device.
void read_memory(LoopCounts& counts, at::Device device) {
  constexpr double mib = 1024.0 * 1024.0;
  const HostMemory host = host_memory();
  counts.host_mb = host.resident_mb;
  counts.host_peak_mb = host.peak_mb;
  if (device.is_cuda()) {
    at::DeviceAllocator* const allocator = at::getDeviceAllocator(device.type());
    const c10::DeviceIndex index = device.has_index() ? device.index() : c10::DeviceIndex(0);
    const auto stats = allocator->getDeviceStats(index);
    counts.device_mb = static_cast<double>(stats.allocated_bytes[0].peak) / mib;
    counts.device_reserved_mb = static_cast<double>(stats.reserved_bytes[0].peak) / mib;
    allocator->resetPeakStats(index);
  }
}

// Displays a group of metrics with one member by the group's name.
void merge_flat(Result& into, const Result& from) {
  for (const auto& [name, value] : from) {
    if (const auto* nested = std::get_if<Result>(&value); nested != nullptr && nested->size() == 1) {
      into.set(name, nested->begin()->value);
    } else {
      into.set(name, value);
    }
  }
}

}  // namespace

LoopFrame::LoopFrame(TorchRunnerBase& runner, std::string_view split, std::optional<std::int64_t> total)
    : runner_(runner),
      split_(split),
      total_(total.value_or(0)),
      interval_(runner.log_interval()),
      reports_(runner.parallelism().reports_metrics()),
      waited_before_(runner.parallelism().waited_seconds()) {
  find_meters();
}

// Also runs after an exception in the loop.
LoopFrame::~LoopFrame() { runner_.services().console->finish(); }

void LoopFrame::start(std::int64_t done) {
  done_ = done;
  logged_ = at_boundary(done) ? done : -1;  // before a stop
  runner_.logger().debug(concat("split ", quote(split_), ": begins a pass at batch ", done,
                                total_ > 0 ? concat(" of ", total_) : std::string()));
  send_split(/*begins=*/true, Result());
  telemetry_.start();
  next_line_ = LoopTelemetry::Clock::now() + quiet;
}

void LoopFrame::resume() {
  const Result none;
  runner_.services().console->on_train_begin({{runner_}, split_, runner_.mode(), done_, total_, none});
  telemetry_.resume();
  next_line_ = LoopTelemetry::Clock::now() + quiet;
}

void LoopFrame::send_split(bool begins, const Result& result) const {
  const RunnerMode mode = runner_.mode();
  const SplitEvent event{{runner_}, split_, mode, done_, total_, result};
  const CallbackList& callbacks = runner_.callbacks_;
  if (mode == RunnerMode::train) {
    begins ? callbacks.notify(&Callback::on_train_begin, "on_train_begin", event)
           : callbacks.notify(&Callback::on_train_end, "on_train_end", event);
  } else {
    begins ? callbacks.notify(&Callback::on_evaluate_begin, "on_evaluate_begin", event)
           : callbacks.notify(&Callback::on_evaluate_end, "on_evaluate_end", event);
  }
}

void LoopFrame::add_rate(const Learner& learner, std::int64_t times) {
  if (runner_.parallelism().computes_shards() && !runner_.is_main_process()) {
    return;  // the same on all ranks; rounding would make the mean depend on their number
  }
  const double lr = learner.optimizer->param_groups().front().lr;
  if (!learner.name.empty()) {
    runner_.meters["lr_" + learner.name].update(lr, times);
    return;
  }
  find_meters();
  if (lr_ == nullptr) {
    lr_ = &runner_.meters["lr"];
  }
  lr_->update(lr, times);
}

void LoopFrame::begin_batch(std::int64_t number) const {
  runner_.meters.begin_batch(number);
  if (MetricsBase* metrics = runner_.active_metrics()) {
    metrics->begin_batch(number);
  }
  if (const auto& losses = runner_.criterion.losses()) {
    losses->begin_batch(number);
  }
}

void LoopFrame::check_loss_meter() {
  checked_loss_ = true;
  if (loss_->count() > loss_count_ && runner_.warned_.insert(concat("loss meter ", split_)).second) {
    runner_.logger().warning(concat("meters[\"loss\"] of split ", quote(split_),
                                    " counts each batch twice: the step updates it, and the runner adds the loss that "
                                    "the step returns; remove the update, or give the meter another name"));
  }
}

// In training each step sends an event.
void LoopFrame::progress(std::int64_t done) {
  if (runner_.mode() != RunnerMode::train) {
    runner_.services().console->progress().update(done, now_);
  }
}

void LoopFrame::write_line() {
  if (runner_.mode() == RunnerMode::train) {
    synchronize(/*ended=*/false);
  }
  write_synchronized();
}

void LoopFrame::join_line(std::int64_t done) {
  done_ = done;
  synchronize_numbers();
  write_synchronized();
}

void LoopFrame::write_synchronized() {
  logged_ = done_;
  next_line_ = now_ + quiet;
  const Result values = collect(/*averages=*/false);
  const Result averages = collect(/*averages=*/true);
  TorchRunnerBase::Internals::Checks(runner_).numbers(*this, averages);
  const Result rates = telemetry(counts_of_all_ ? *counts_of_all_ : counts(/*whole=*/false));
  counts_of_all_.reset();
  runner_.callbacks_.notify(&Callback::on_log, "on_log",
                            LogEvent{{runner_}, split_, runner_.mode(), done_, values, averages, rates});
}

bool LoopFrame::synchronize(bool ended) {
  const Group& group = runner_.group();
  if (group.alone()) {
    return true;
  }
  bool all_ended = true;
  bool updating = false;
  const std::vector<Message> messages = meet(group, ended ? Purpose::ended : Purpose::log, place());
  check_outside_step(messages, "runner.train");
  for (const Message& other : messages) {
    all_ended = all_ended && other.purpose == Purpose::ended;
    updating = updating || other.purpose == Purpose::update;
  }
  if (updating) {
    if (!ended) {
      fail_apart(messages, "runner.train");
    }
    return false;  // others exchange packets only at an update
  }
  synchronize_numbers();
  return all_ended;
}

void LoopFrame::reset_numbers() const {
  runner_.meters.reset();
  if (MetricsBase* metrics = runner_.active_metrics()) {
    metrics->reset();
  }
  if (const auto& losses = runner_.criterion.losses()) {
    losses->reset();
  }
}

// For ranks that have ended the pass and join the updates of this rank.
std::string LoopFrame::place() const {
  const StepPacket packet{.micro_step = runner_.state_.train.micro_step, .iteration = done_, .exhausted = true};
  std::string out(sizeof packet, '\0');
  std::memcpy(out.data(), &packet, sizeof packet);
  return out;
}

void LoopFrame::synchronize_numbers() {
  const Group& group = runner_.group();
  runner_.meters.synchronize(group);
  if (MetricsBase* metrics = runner_.active_metrics()) {
    metrics->synchronize(group);
  }
  if (const auto& losses = runner_.criterion.losses()) {
    losses->synchronize(group);
  }
  if (runner_.mode() == RunnerMode::train) {
    counts_of_all_ = RankTimes(group, counts(/*whole=*/false), 0.0).total();
  }
}

LoopCounts LoopFrame::counts(bool whole) {
  LoopCounts out = whole ? telemetry_.total() : telemetry_.interval();
  read_memory(out, runner_.device());
  most_.observe_memory(out);
  if (whole) {
    out.observe_memory(most_);
  }
  return out;
}

Result LoopFrame::telemetry(const LoopCounts& counts) const {
  Result out = counts.result();
  if (runner_.services().flops != nullptr) {
    runner_.services().flops->add_rates(out, counts, runner_.mode() == RunnerMode::train);
  }
  out.merge(time_stamp());
  return out;
}

Result LoopFrame::collect(bool averages) const {
  Result result;
  for (const auto& [name, meter] : runner_.meters) {
    // Skips meters without a value (the loss of a run without a criterion, or a meter of another split).
    if (meter.count() > 0) {
      result.set(name, averages ? meter.average() : meter.batch());
    }
  }
  if (const MetricsBase* metrics = runner_.active_metrics()) {
    merge_flat(result, averages ? metrics->average() : metrics->batch());
  }
  if (const auto& losses = runner_.criterion.losses()) {
    const Result counts = losses->count();
    if (*counts.number(counts.begin()->name) > 0) {
      result.set("losses", averages ? losses->average() : losses->batch());
    }
  }
  if (runner_.mode() == RunnerMode::train) {
    TorchRunnerBase::Internals::Gradients(runner_).add_stats(result, averages);
  }
  return result;
}

Result LoopFrame::finish(const std::function<void(const Result&)>& close) {
  if (total_ == 0 && interval_ > 0 && done_ > 0 && logged_ != done_ && due()) {
    write_line();
  }
  while (!synchronize(/*ended=*/true)) {
    // Ranks with more batches wait for this rank at their log boundaries.
  }
  const Result result = collect(/*averages=*/true);
  TorchRunnerBase::Internals::Checks(runner_).numbers(*this, result);
  if (done_ > 0) {
    TorchRunnerBase::Internals::Checks(runner_).metrics_fed(*this);
    TorchRunnerBase::Internals::Checks(runner_).loss_returned(*this);
    TorchRunnerBase::Internals::Checks(runner_).loss_weighted(*this);
  }
  if (close) {
    close(result);
  }
  const RankTimes times(runner_.group(), counts(/*whole=*/true),
                        runner_.parallelism().waited_seconds() - waited_before_);
  const Result rates = telemetry(times.total());
  if (const std::string report = times.report(); !report.empty() && runner_.mode() == RunnerMode::train) {
    runner_.logger().info(concat(split_, ": ", report));
  }
  runner_.callbacks_.notify(&Callback::on_log, "on_log",
                            LogEvent{{runner_}, split_, runner_.mode(), std::nullopt, result, result, rates});
  send_split(/*begins=*/false, result);
  return result;
}

}  // namespace danling::inline v0::detail
