#include "runner/step_tapes.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include <danling/runner/batch_tensors.hpp>
#include <danling/telemetry/logger.hpp>
#include <tape/checker.hpp>

namespace danling::inline v0 {
namespace {

using Clock = std::chrono::steady_clock;
using tape::Tensors;

constexpr std::int64_t explained_steps = 20;
constexpr int lost_trials = 3;

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

/// That of recordings in this process.
struct Turn {
  static inline std::atomic_flag taken;
  const bool has = !taken.test_and_set();
  Turn() = default;
  ~Turn() {
    if (has) {
      taken.clear();
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
};

/// Finds what the step's code, and none of its operators, has written to the batch.
class Unwritten {
 public:
  explicit Unwritten(const Tensors& batch) : kept_(strided(batch)) {}
  std::string difference(const tape::Recording& recording) const {
    return kept_.difference() >= 0 && !changes_batch(recording) ? "the step changes its batch past LibTorch's operators"
                                                                : "";
  }

 private:
  static Tensors strided(const Tensors& batch) {
    Tensors out;
    std::copy_if(batch.begin(), batch.end(), std::back_inserter(out), [](const at::Tensor& tensor) {
      return tensor.defined() && tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_nested();
    });
    return out;
  }
  tape::KeptTensors kept_;
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
  const bool opens_loop = std::exchange(kind.loop, loops_) != loops_;
  if (kind.phase == Phase::warm && kind.count >= detail::tape_schedule().warm) {
    kind.phase = Phase::record;
    kind.count = 0;
  }
  if (kind.tape != nullptr) {
    if (const std::string why = kind.tape->misfit(); !why.empty()) {
      leave_eager(kind, why, /*warn=*/true);
    } else if (kind.counts_bind && kind.counts != parts.counts) {  // recorded anew, to see whether the step reads them
      kind.tape.reset();
      kind.phase = Phase::record;
    }
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
      return record(kind, parts, eager);
    case Phase::check:
      return check_replay(kind, batch, eager);
    case Phase::trial:
      return try_replay(kind, batch, eager);
    case Phase::replay:
      if (config_.verify > 0 &&
          (kind.replays >= kind.next_check || (opens_loop && (kind.unchecked >= 50 || kind.tape->reads_unnamed())))) {
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

at::Tensor TorchRunnerBase::StepTapes::record(Kind& kind, const detail::BatchParts& parts,
                                              const std::function<at::Tensor()>& eager) {
  // LibTorch's dispatcher has one place for a recording. Another runner has it: this step runs as it is.
  const Turn turn;
  if (!turn.has) {
    return run_eager(eager);
  }
  arena_->make_room();
  ++report_.recorded;
  at::Tensor loss;
  tape::Recording recording;
  const std::uint64_t modes_before = modes();
  const Unwritten unwritten(parts.tensors);
  {
    tape::Recorder recorder(surroundings(parts.tensors));
    const Observing scope(observing_, &recorder);
    loss = eager();
    recording = recorder.finish({loss});
  }
  if (recording.refusal.empty()) {
    recording.refusal = unwritten.difference(recording);
  }
  if (modes() != modes_before && recording.refusal.empty()) {
    recording.refusal = "it changes which parameters want gradients, or the mode of a module";
  }
  if (!recording.refusal.empty()) {
    leave_eager(kind, recording.refusal, /*warn=*/true);
  } else if (!kind.first) {
    kind.first = std::move(recording);
    kind.counts = parts.counts;
  } else {
    const std::string why = merge(*kind.first, recording);
    kind.first.reset();
    if (why.empty()) {
      kind.counts_bind = kind.counts == parts.counts;
      build_tape(kind, std::move(recording));
    } else {
      leave_eager(kind, why, /*warn=*/true);
    }
  }
  return loss;
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
  at::Tensor loss;
  std::string difference;
  {
    const Unwritten unwritten(batch);
    tape::Checker checker(*kind.tape, batch, buffers_);
    const Observing scope(observing_, &checker);
    loss = eager();
    difference = checker.finish({loss});
    if (const std::string unseen = unwritten.difference(kind.tape->recording()); !unseen.empty()) {
      difference = unseen;
    }
  }
  if (!difference.empty()) {
    leave_eager(
        kind,
        kind.phase == Phase::replay
            ? concat("a replay is the step no longer: ", difference, ". The ", kind.replays,
                     " replays before may differ from an eager run. If the step depends on more than its batch, "
                     "override step_variant()")
            : concat("its replay is not the step: ", difference),
        /*warn=*/true);
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
    const bool faster = kind.replay_seconds <= kind.eager_seconds;
    if (!faster && ++kind.lost_trials < lost_trials) {
      kind.count = 0;  // other programs may have disturbed it
    } else if (!faster) {
      leave_eager(kind,
                  concat("a replay takes ", to_fixed(kind.replay_seconds * 1e6, 1), " microseconds, the step ",
                         to_fixed(kind.eager_seconds * 1e6, 1)),
                  /*warn=*/false);
    } else {
      kind.phase = Phase::replay;
      kind.count = 0;
      if (kind.mode == RunnerMode::train && said_.insert("replays").second) {
        runner_.logger().info(
            "compile: training steps are replayed from here on: their operators, meters and updates. "
            "What else train_step does is left out");
      }
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
  kind.tape.reset();
  kind.first.reset();
  kind.phase = Phase::eager;
  const bool is_new = said_.insert(concat(static_cast<int>(kind.mode), why)).second;
  if (is_new) {
    report_.refusals.push_back(why);
  }
  check<StateError>(!config_.fullgraph.value_or(false) || !warn, "compile",
                    "expected a step that can be recorded (compile.fullgraph), got one of the ", name_of(kind), ": ",
                    why);
  if (is_new) {
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
