#include "runner/step_tapes.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include <danling/runner/batch_tensors.hpp>
#include <danling/telemetry/logger.hpp>
#include <tape/checker.hpp>

namespace danling::inline v0 {
namespace {

using Clock = std::chrono::steady_clock;
using tape::Tensors;

constexpr std::int64_t explained_steps = 20;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Sets a pointer for its lifetime.
class Observing {
 public:
  Observing(tape::StepObserver*& place, tape::StepObserver* observer) : place_(place) { place_ = observer; }
  ~Observing() { place_ = nullptr; }
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

 private:
  tape::StepObserver*& place_;
};

}  // namespace

detail::TapeSchedule& detail::tape_schedule() {
  static TapeSchedule schedule;
  return schedule;
}

TorchRunnerBase::StepTapes::StepTapes(TorchRunnerBase& runner) : runner_(runner), config_(runner.config().compile) {}
TorchRunnerBase::StepTapes::~StepTapes() = default;

std::shared_ptr<TorchRunnerBase::StepTapes> TorchRunnerBase::StepTapes::build(TorchRunnerBase& runner) {
  return runner.config().compile.enable ? std::make_shared<StepTapes>(runner) : nullptr;
}

CompileReport TorchRunnerBase::StepTapes::report() const {
  CompileReport out = report_;
  out.tapes = std::count_if(kinds_.begin(), kinds_.end(), [](const auto& kind) { return kind->tape != nullptr; });
  return out;
}

// ---- a step ---------------------------------------------------------------------------------------------------------

at::Tensor TorchRunnerBase::StepTapes::run(RunnerMode mode, const detail::BatchParts& parts,
                                           const std::function<at::Tensor()>& eager) {
  ++steps_;
  const OpenStep* const step = runner_.open_step_;
  if (observing_ != nullptr || !is_recordable(mode) ||
      (mode == RunnerMode::train && step != nullptr && step->normalizer && *step->normalizer <= 0)) {
    ++report_.eager;
    return eager();
  }
  const Tensors& batch = parts.tensors;
  write_key(mode, parts);
  Kind& kind = find(mode);
  kind.used = steps_;
  if (kind.phase == Phase::warm && kind.count >= detail::tape_schedule().warm) {
    kind.phase = Phase::record;
    kind.count = 0;
  }
  switch (kind.phase) {
    case Phase::warm: {
      arena_->release();  // the step needs as much
      const auto start = Clock::now();
      at::Tensor loss = run_eager(eager);
      const double seconds = seconds_since(start);
      kind.eager_seconds = kind.count <= 1 ? seconds : std::min(kind.eager_seconds, seconds);
      ++kind.count;
      return loss;
    }
    case Phase::record:
      return record(kind, batch, eager);
    case Phase::check:
      return check_replay(kind, batch, eager);
    case Phase::trial:
      return try_replay(kind, batch, eager);
    case Phase::replay:
      if (config_.verify > 0 && (kind.replays >= kind.next_check ||
                                 (kind.checked_in != loops_ && (kind.unchecked >= 50 || kind.tape->reads_unnamed())))) {
        kind.next_check = kind.replays >= kind.next_check ? kind.next_check * 10 : kind.next_check;
        return check_replay(kind, batch, eager);
      }
      return replay(kind, batch, eager);
    case Phase::eager:
      break;
  }
  return run_eager(eager);
}

at::Tensor TorchRunnerBase::StepTapes::run_eager(const std::function<at::Tensor()>& eager) {
  ++report_.eager;
  return eager();
}

at::Tensor TorchRunnerBase::StepTapes::record(Kind& kind, const Tensors& batch,
                                              const std::function<at::Tensor()>& eager) {
  // LibTorch's dispatcher has one place for a recording: a runner in another thread waits for its turn.
  static std::mutex one_at_a_time;
  const std::unique_lock turn(one_at_a_time, std::try_to_lock);
  if (!turn) {
    return run_eager(eager);
  }
  arena_->make_room();
  ++report_.recorded;
  at::Tensor loss;
  tape::Recording recording;
  std::vector<std::int64_t> counts;
  for (const auto& [name, meter] : runner_.meters) {
    counts.push_back(meter.count());
  }
  {
    tape::Recorder recorder(surroundings(batch));
    const Observing scope(observing_, &recorder);
    loss = eager();
    recording = recorder.finish({loss});
  }
  check_meters(counts, recording);
  if (!recording.refusal.empty()) {
    leave_eager(kind, recording.refusal, /*warn=*/true);
  } else if (!kind.first) {
    kind.first = std::move(recording);
  } else {
    const std::string why = merge(*kind.first, recording);
    kind.first.reset();
    if (why.empty()) {
      build_tape(kind, std::move(recording));
    } else {
      leave_eager(kind, why, /*warn=*/true);
    }
  }
  return loss;
}

/// A replay updates meters with tensors; numbers of the program it does not know.
void TorchRunnerBase::StepTapes::check_meters(const std::vector<std::int64_t>& counts,
                                              tape::Recording& recording) const {
  std::size_t i = 0;
  for (const auto& [name, meter] : runner_.meters) {
    const std::int64_t before = i < counts.size() ? counts[i] : 0;
    ++i;
    const bool known = std::any_of(recording.host_calls.begin(), recording.host_calls.end(),
                                   [meter = &meter](const tape::HostCall& call) { return call.object == meter; });
    if (meter.count() != before && !known && recording.refusal.empty()) {
      recording.refusal = concat("the step updates the meter ", quote(name), " with a number; pass a tensor");
    }
  }
}

void TorchRunnerBase::StepTapes::build_tape(Kind& kind, tape::Recording recording) {
  kind.tape = std::make_unique<tape::Tape>(std::move(recording), arena_);
  kind.phase = config_.verify > 0 ? Phase::check : after_check();
  kind.count = 0;
}

at::Tensor TorchRunnerBase::StepTapes::check_replay(Kind& kind, const Tensors& batch,
                                                    const std::function<at::Tensor()>& eager) {
  kind.tape->forget_outputs();
  arena_->make_room();
  ++report_.checked;
  kind.unchecked = 0;
  kind.checked_in = loops_;
  at::Tensor loss;
  std::string difference;
  {
    tape::Checker checker(*kind.tape, batch, buffers_);
    const Observing scope(observing_, &checker);
    loss = eager();
    difference = checker.finish({loss});
  }
  if (!difference.empty()) {
    const std::string since =
        kind.phase == Phase::replay
            ? concat(" after ", kind.replays, " replays; steps before this one may differ from an eager run too")
            : "";
    leave_eager(kind, concat("its replay is not the step", since, ": ", difference), /*warn=*/true);
  } else if (kind.phase == Phase::check && ++kind.count >= config_.verify) {
    kind.phase = after_check();
    kind.count = 0;
  }
  return loss;
}

TorchRunnerBase::StepTapes::Phase TorchRunnerBase::StepTapes::after_check() {
  return detail::tape_schedule().trial > 0 ? Phase::trial : Phase::replay;
}

/// Eager steps, then replays: a tape must be faster. Not in turn, since each would take the other's memory.
at::Tensor TorchRunnerBase::StepTapes::try_replay(Kind& kind, const Tensors& batch,
                                                  const std::function<at::Tensor()>& eager) {
  const std::int64_t half = detail::tape_schedule().trial / 2;
  const bool replays = kind.count >= half;
  if (!replays) {
    arena_->release();
  }
  const auto start = Clock::now();
  at::Tensor loss = replays ? replay(kind, batch, eager) : run_eager(eager);
  const double seconds = seconds_since(start);
  double& least = replays ? kind.replay_seconds : kind.eager_seconds;
  least = kind.count % half == 0 ? seconds : std::min(least, seconds);
  if (kind.phase == Phase::trial && ++kind.count == detail::tape_schedule().trial) {
    if (kind.replay_seconds > kind.eager_seconds) {
      leave_eager(kind,
                  concat("a replay takes ", to_fixed(kind.replay_seconds * 1e6, 1), " microseconds, the step ",
                         to_fixed(kind.eager_seconds * 1e6, 1)),
                  /*warn=*/false);
    } else {
      kind.phase = Phase::replay;
      kind.count = 0;
    }
  }
  return loss;
}

at::Tensor TorchRunnerBase::StepTapes::replay(Kind& kind, const Tensors& batch,
                                              const std::function<at::Tensor()>& eager) {
  std::optional<tape::GeneratorStates> random;
  std::optional<tape::KeptTensors> kept;
  if (kind.tape->has_guards()) {
    random.emplace(kind.tape->generators());
    kept.emplace(kind.tape->changed(batch, buffers_));
  }
  if (config_.explain) [[unlikely]] {
    explain(kind);
  }
  ++kind.replays;
  ++kind.unchecked;
  Tensors results = kind.tape->replay(batch);
  if (kind.tape->left_early()) [[unlikely]] {
    random->restore();
    kept->restore();
    return run_eager(eager);
  }
  ++report_.replayed;
  return std::move(results.front());
}

// ---- words ----------------------------------------------------------------------------------------------------------

std::string TorchRunnerBase::StepTapes::name_of(const Kind& kind) const {
  return concat(kind.mode == RunnerMode::train      ? "training"
                : kind.mode == RunnerMode::evaluate ? "evaluation"
                                                    : "inference",
                " steps of split ", quote(runner_.split()));
}

void TorchRunnerBase::StepTapes::leave_eager(Kind& kind, const std::string& why, bool warn) {
  check<StateError>(!config_.fullgraph.value_or(false) || !warn, "compile",
                    "expected a step that can be recorded (compile.fullgraph), got one of the ", name_of(kind), ": ",
                    why);
  kind.tape.reset();
  kind.first.reset();
  kind.phase = Phase::eager;
  report_.refusals.push_back(why);
  if (said_.insert(concat(static_cast<int>(kind.mode), why)).second) {
    const std::string text = concat("compile: ", name_of(kind), " run as they are: ", why);
    warn ? runner_.logger().warning(text) : runner_.logger().info(text);
  }
}

void TorchRunnerBase::StepTapes::log_report() {
  const CompileReport now = report();
  const std::int64_t all = now.eager + now.recorded + now.checked + now.replayed;
  runner_.logger().info(concat("compile: ", now.replayed, " of ", all, " steps replayed, by ", now.tapes,
                               now.tapes == 1 ? " tape" : " tapes"));
}

void TorchRunnerBase::StepTapes::explain(Kind& kind) {
  if (kind.phase != Phase::replay) {
    return;
  }
  if (kind.count == 0) {
    kind.tape->measure(true);
  }
  if (kind.count++ == explained_steps) {
    kind.tape->measure(false);
    runner_.logger().info(concat("compile: ", name_of(kind), ", batch of ", kind.tape->batch_text(),
                                 "; an eager step takes ", to_fixed(kind.eager_seconds * 1e6, 1), " us, a replay ",
                                 to_fixed(kind.replay_seconds * 1e6, 1), "; microseconds by call:\n",
                                 kind.tape->text()));
  }
}

}  // namespace danling::inline v0
