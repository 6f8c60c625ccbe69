#include "runner/loop_frame.hpp"

#include <chrono>

#include <danling/metrics/metrics.hpp>

#include "runner/services.hpp"

namespace danling::inline v0::detail {
namespace {

constexpr std::chrono::seconds quiet(5);

// A group of metrics with one member is shown by its own name.
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

LoopFrame::LoopFrame(TorchRunnerBase& runner, std::string_view split, data::LoaderBase& loader,
                     std::optional<std::int64_t> total)
    : runner_(runner),
      split_(split),
      loader_(loader),
      total_(total.value_or(0)),
      interval_(runner.log_interval()),
      loss_(&runner.meters["loss"]) {}

LoopFrame::~LoopFrame() { runner_.services().progress.finish(); }

void LoopFrame::start(std::int64_t done) {
  done_ = done;
  logged_ = at_boundary(done) ? done : -1;  // before the stop
  runner_.services().progress.start(label(), total_, done);
  telemetry_.start();
  next_line_ = LoopTelemetry::Clock::now() + quiet;
}

std::string LoopFrame::label() const {
  if (runner_.mode() != RunnerMode::train) {
    return concat(runner_.mode() == RunnerMode::evaluate ? "evaluate " : "infer ", split_);
  }
  if (const auto epochs = runner_.epochs()) {
    return concat(split_, " epoch ", runner_.state().train.epoch + 1, "/", *epochs);
  }
  return concat(split_, " steps to ", runner_.steps().value_or(0));
}

void LoopFrame::progress(std::int64_t done) { runner_.services().progress.update(done, now_); }

void LoopFrame::write_line() {
  logged_ = done_;
  next_line_ = now_ + quiet;
  const RunnerMode mode = runner_.mode();
  if (mode == RunnerMode::train) {
    synchronize(/*ended=*/false);
  }
  const Result values = collect(/*averages=*/false);
  const Result averages = collect(/*averages=*/true);
  auto& services = runner_.services();
  const LoopCounts counts = telemetry_.interval();
  const Result rates = counts.result();
  if (mode == RunnerMode::train) {
    write_metrics(values, rates, done_);
  }
  std::vector<ProgressField> fields;
  for (const auto& [name, value] : values) {
    if (const auto* number = std::get_if<double>(&value)) {
      const double* average = averages.number(name);
      const bool varies = average != nullptr && name != "lr";
      fields.push_back({name, *number, varies ? std::optional<double>(*average) : std::nullopt});
    }
  }
  const double* rate = rates.number("samples_per_s");
  services.progress.boundary(done_, std::move(fields), rate == nullptr ? 0.0 : *rate, "samples",
                             counts.seconds > 0 ? counts.data_seconds / counts.seconds : 0.0);
}

bool LoopFrame::synchronize(bool ended) {
  const Group& group = runner_.group();
  if (group.alone()) {
    return true;
  }
  bool all_ended = true;
  for (const std::string& other : group.all_gather(ended ? "ended" : "")) {
    all_ended = all_ended && !other.empty();
  }
  runner_.meters.synchronize(group);
  if (MetricsBase* metrics = runner_.active_metrics()) {
    metrics->synchronize(group);
  }
  if (const auto& losses = runner_.criterion.losses()) {
    losses->synchronize(group);
  }
  return all_ended;
}

Result LoopFrame::collect(bool averages) const {
  Result result;
  for (const auto& [name, meter] : runner_.meters) {
    // A meter without a single value (the loss of a run without a criterion, or one of another split) says nothing.
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
  return result;
}

Result LoopFrame::finish() {
  if (total_ == 0 && interval_ > 0 && done_ > 0 && logged_ != done_ && due()) {
    write_line();
  }
  while (!synchronize(/*ended=*/true)) {
    // Others have more batches, and log boundaries at which they wait for this rank.
  }
  const Result result = collect(/*averages=*/true);
  auto& services = runner_.services();
  services.progress.finish();
  const Result rates = telemetry_.total().result();
  write_metrics(result, rates, std::nullopt);
  return result;
}

void LoopFrame::write_metrics(const Result& metrics, const Result& rates, std::optional<std::int64_t> iteration) const {
  if (Recorder* recorder = runner_.services().recorder.get()) {
    recorder->append({.split = split_,
                      .mode = to_string(runner_.mode()),
                      .epoch = runner_.state().train.epoch,
                      .global_step = runner_.state().train.global_step,
                      .iteration = iteration,
                      .metrics = metrics,
                      .telemetry = rates});
  }
}

}  // namespace danling::inline v0::detail
