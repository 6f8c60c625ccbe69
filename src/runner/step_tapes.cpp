#include <runner/step_tapes.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include <danling/runner/detail/batch_tensors.hpp>
#include <danling/telemetry/logger.hpp>

#include <tape/checker.hpp>

namespace danling::inline v0 {
namespace {

using tape::Tensors;

constexpr std::int64_t explained_steps = 20;
constexpr int lost_trials = 3;
constexpr int recordings_of_numbers = 3;  // after as many recordings, a batch's numbers count as changing
constexpr int early_ends = 8;

std::string text_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
}

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

/// The turn of recordings in this process.
struct RecordingTurn {
  static inline std::atomic_flag taken;
  const bool has = !taken.test_and_set();
  RecordingTurn() = default;
  ~RecordingTurn() {
    if (has) {
      taken.clear();
    }
  }
  RecordingTurn(const RecordingTurn&) = delete;
  RecordingTurn& operator=(const RecordingTurn&) = delete;
};

/// Finds changes of the batch by the step's code, outside its operators.
class Unwritten {
 public:
  explicit Unwritten(const Tensors& batch) : kept_(strided(batch)) {}
  std::string difference(const tape::Recording& recording) const {
    return kept_.difference() >= 0 && !changes_batch(recording)
               ? "the step changes its batch outside of LibTorch's operators"
               : "";
  }

 private:
  static Tensors strided(const Tensors& batch) {
    Tensors out;
    std::copy_if(batch.begin(), batch.end(), std::back_inserter(out), tape::is_strided);
    return out;
  }
  tape::KeptTensors kept_;
};

}  // namespace

double detail::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

detail::TapeSchedule& detail::tape_schedule() {
  static TapeSchedule schedule;
  return schedule;
}

TorchRunnerBase::Internals::StepTapes::StepTapes(TorchRunnerBase& runner)
    : runner_(runner), config_(runner.config().compile) {}
TorchRunnerBase::Internals::StepTapes::~StepTapes() = default;

std::shared_ptr<TorchRunnerBase::Internals::StepTapes> TorchRunnerBase::Internals::StepTapes::build(
    TorchRunnerBase& runner) {
  return runner.config().compile.enable ? std::make_shared<StepTapes>(runner) : nullptr;
}

CompileReport TorchRunnerBase::Internals::StepTapes::report() const {
  CompileReport out = report_;
  out.tapes = std::count_if(kinds_.begin(), kinds_.end(), [](const auto& kind) { return kind->tape != nullptr; });
  return out;
}

// ---- a step ---------------------------------------------------------------------------------------------------------

at::Tensor TorchRunnerBase::Internals::StepTapes::run(RunnerMode mode, const detail::BatchParts& parts,
                                                      const std::function<at::Tensor()>& eager) {
  ++steps_;
  const OpenStep* const step = runner_.open_step_;
  if (observing_ != nullptr || !is_recordable(mode) ||
      (mode == RunnerMode::train && step != nullptr && step->normalizer && *step->normalizer <= 0)) {
    ++report_.eager;
    return eager();
  }
  const Tensors& batch = parts.tensors;
  refresh();
  write_key(mode, parts);
  Kind* const found = find(mode);
  if (found == nullptr) {
    return run_eager(eager);
  }
  Kind& kind = *found;
  kind.last_step = steps_;
  const bool opens_loop = std::exchange(kind.last_loop, loops_) != loops_;
  if (kind.phase == Phase::warm && kind.count >= detail::tape_schedule().warm) {
    kind.phase = Phase::record;
    kind.count = 0;
  }
  if (kind.tape != nullptr) {
    if (const std::string why = kind.tape->misfit(); !why.empty()) {
      leave_eager(kind, why, /*is_fault=*/true);
    } else if (!fits_counts(kind, parts.counts)) {
      kind.tape.reset();
      kind.phase = Phase::record;  // again, to find whether the step reads them
      if (++kind.recorded_anew > recordings_of_numbers) {
        leave_eager(kind, "num_tokens or loss_normalizer of its batches changes now and then", /*is_fault=*/true);
      }
    }
  }
  switch (kind.phase) {
    case Phase::warm:
      give_room(kind);
      ++kind.count;
      break;
    case Phase::record:
      return record(kind, parts, eager);
    case Phase::check:
      return check_replay(kind, batch, eager);
    case Phase::trial:
      return try_replay(kind, batch, eager);
    case Phase::replay:
      if (config_.verify > 0 &&
          (kind.replays >= kind.next_check || (opens_loop && (kind.unchecked >= 50 || kind.tape->reads_unnamed())))) {
        plan_check(kind);
        return check_replay(kind, batch, eager);
      }
      return replay(kind, batch, eager);
    case Phase::eager:
      check_whole(kind);
      break;
  }
  return run_eager(eager);
}

/// At growing distances that share no divisor with a period of the program, such as every 100th step.
void TorchRunnerBase::Internals::StepTapes::plan_check(Kind& kind) {
  constexpr std::int64_t shortest = 17;
  constexpr std::int64_t longest = 997;
  if (kind.replays >= kind.next_check) {
    kind.next_check += std::clamp(kind.next_check * 7 / 10, shortest, longest);
  }
}

/// An eager step needs as much memory as its replay. If other kinds are replayed, they would have to allocate again.
void TorchRunnerBase::Internals::StepTapes::give_room(const Kind& kind) {
  const bool alone = std::none_of(kinds_.begin(), kinds_.end(), [&](const auto& other) {
    return other.get() != &kind && other->phase == Phase::replay;
  });
  if (alone || kind.phase == Phase::replay) {
    const bool as_ever = kind.phase == Phase::warm || kind.phase == Phase::trial;
    as_ever ? arena_->release() : arena_->make_room();
  }
}

at::Tensor TorchRunnerBase::Internals::StepTapes::run_eager(const std::function<at::Tensor()>& eager) {
  ++report_.eager;
  return eager();
}

at::Tensor TorchRunnerBase::Internals::StepTapes::record(Kind& kind, const detail::BatchParts& parts,
                                                         const std::function<at::Tensor()>& eager) {
  // A process records one step at a time. If another runner records, this step runs eagerly.
  const RecordingTurn turn;
  if (!turn.has) {
    return run_eager(eager);
  }
  give_room(kind);
  ++report_.recorded;
  at::Tensor loss;
  tape::Recording recording;
  const std::uint64_t modes_before = mode_hash();
  const Unwritten unwritten(parts.tensors);
  {
    tape::Recorder recorder(surroundings(parts.tensors));
    const Observing scope(observing_, &recorder);
    expect_settings();
    loss = eager();
    check_settings();
    recording = recorder.finish({loss});
  }
  if (recording.refusal.empty()) {
    recording.refusal = unwritten.difference(recording);
  }
  if (mode_hash() != modes_before && recording.refusal.empty()) {
    recording.refusal = "it changes which parameters require gradients, or the mode of a module";
  }
  if (!recording.refusal.empty()) {
    leave_eager(kind, recording.refusal, /*is_fault=*/true);
  } else if (!kind.first) {
    if (!parts.is_whole && logged_.insert("parts").second) {
      runner_.logger().info(
          "compile: the batch type lists only input and target; its other members must be the same in "
          "all steps. Define parts() to list them");
    }
    kind.first = std::move(recording);
    kind.counts = parts.counts;
  } else {
    const std::string why = reconcile(*kind.first, recording);
    kind.first.reset();
    if (why.empty()) {
      kind.counts_bind.clear();
      for (std::size_t i = 0; i < kind.counts.size(); ++i) {
        kind.counts_bind.push_back(kind.counts[i] == parts.counts[i]);
      }
      build_tape(kind, std::move(recording));
    } else {
      leave_eager(kind, why, /*is_fault=*/true);
    }
  }
  return loss;
}

void TorchRunnerBase::Internals::StepTapes::build_tape(Kind& kind, tape::Recording recording) {
  try {
    kind.tape = std::make_unique<tape::Tape>(std::move(recording), arena_);
  } catch (const std::exception& error) {  // the step itself succeeded
    leave_eager(kind, concat("its tape cannot be built: ", text_of(error)), /*is_fault=*/true);
    return;
  }
  kind.phase = config_.verify > 0 ? Phase::check : after_check();
  kind.count = 0;
  kind.replays = kind.unchecked = 0;
  kind.next_check = 10;
  kind.lost_trials = kind.ended_early = 0;
}

at::Tensor TorchRunnerBase::Internals::StepTapes::check_replay(Kind& kind, const Tensors& batch,
                                                               const std::function<at::Tensor()>& eager) {
  kind.tape->forget_outputs();
  give_room(kind);
  ++report_.checked;
  kind.unchecked = 0;
  at::Tensor loss;
  std::string difference;
  bool left_early = false;
  {
    const Unwritten unwritten(batch);
    tape::Checker checker(*kind.tape, batch, buffers_);
    const Observing scope(observing_, &checker);
    expect_settings();
    loss = eager();
    check_settings();
    difference = checker.finish({loss});
    left_early = checker.left_early();
    if (const std::string unseen = unwritten.difference(kind.tape->recording()); !unseen.empty()) {
      difference = unseen;
    }
  }
  if (!difference.empty()) {
    leave_eager(
        kind,
        kind.phase == Phase::replay
            ? concat("a replay no longer matches the step: ", difference, ". The ", kind.replays,
                     " replays before may differ from an eager run. If the step depends on more than its batch, "
                     "override step_variant()")
            : concat("its replay differs from the step: ", difference),
        /*is_fault=*/true);
  } else if (left_early) {
    count_early_end(kind);
  } else if (kind.phase == Phase::check && ++kind.count >= config_.verify) {
    kind.phase = after_check();
    kind.count = 0;
  }
  return loss;
}

TorchRunnerBase::Internals::StepTapes::Phase TorchRunnerBase::Internals::StepTapes::after_check() {
  return detail::tape_schedule().trial > 1 ? Phase::trial : Phase::replay;
}

/// Eager steps, then replays: a tape must be faster. Not alternating, since each would take the other's memory.
at::Tensor TorchRunnerBase::Internals::StepTapes::try_replay(Kind& kind, const Tensors& batch,
                                                             const std::function<at::Tensor()>& eager) {
  const std::int64_t half = detail::tape_schedule().trial / 2;
  const bool replays = kind.count >= half;
  if (!replays) {
    give_room(kind);
  }
  const auto now = detail::tape_schedule().now;
  const double start = now();
  at::Tensor loss = replays ? replay(kind, batch, eager) : run_eager(eager);
  const double seconds = now() - start;
  double& least = replays ? kind.replay_seconds : kind.eager_seconds;
  least = kind.count % half == 0 ? seconds : std::min(least, seconds);
  if (kind.phase != Phase::trial || ++kind.count < 2 * half) {
    return loss;
  }
  kind.count = 0;
  if (kind.replay_seconds <= kind.eager_seconds) {
    kind.phase = Phase::replay;
  } else if (++kind.lost_trials == lost_trials) {  // other programs may have disturbed a trial
    leave_eager(kind,
                concat("a replay takes ", to_fixed(kind.replay_seconds * 1e6, 1), " microseconds, the step ",
                       to_fixed(kind.eager_seconds * 1e6, 1)),
                /*is_fault=*/false);
  }
  return loss;
}

at::Tensor TorchRunnerBase::Internals::StepTapes::replay(Kind& kind, const Tensors& batch,
                                                         const std::function<at::Tensor()>& eager) {
  std::optional<tape::GeneratorStates> random;
  std::optional<tape::KeptTensors> kept;
  if (kind.tape->has_guards()) {
    random.emplace(kind.tape->generators());
    kept.emplace(kind.tape->written(batch, buffers_));
  }
  log_replays(kind);
  if (config_.explain) [[unlikely]] {
    explain(kind);
  }
  ++kind.replays;
  ++kind.unchecked;
  const detail::NamedRange range(runner_.profiled_, "danling.replay");  // for operators that no profiler sees
  Tensors results = kind.tape->replay(batch);
  if (kind.tape->left_early()) [[unlikely]] {
    random->restore();
    kept->restore();
    count_early_end(kind);
    return run_eager(eager);
  }
  kind.ended_early = 0;
  ++report_.replayed;
  return std::move(results.front());
}

void TorchRunnerBase::Internals::StepTapes::count_early_end(Kind& kind) {
  if (++kind.ended_early == early_ends) {
    leave_eager(kind, "a recorded condition rarely holds", /*is_fault=*/true);
  }
}

// ---- words ----------------------------------------------------------------------------------------------------------

std::string TorchRunnerBase::Internals::StepTapes::name_of(const Kind& kind) const {
  return concat(kind.mode == RunnerMode::train      ? "training"
                : kind.mode == RunnerMode::evaluate ? "evaluation"
                                                    : "inference",
                " steps of split ", quote(runner_.split()));
}

void TorchRunnerBase::Internals::StepTapes::leave_eager(Kind& kind, const std::string& why, bool is_fault) {
  kind.tape.reset();
  kind.first.reset();
  kind.phase = Phase::eager;
  kind.left_since = is_fault ? why : "";
  const bool is_new = logged_.insert(concat(static_cast<int>(kind.mode), why)).second;
  if (is_new) {
    report_.refusals.push_back(why);
  }
  check_whole(kind);
  if (is_new) {
    const std::string text = concat("compile: ", name_of(kind), " run eagerly: ", why);
    is_fault ? runner_.logger().warning(text) : runner_.logger().info(text);
  }
}

void TorchRunnerBase::Internals::StepTapes::check_whole(const Kind& kind) const {
  check<StateError>(!config_.fullgraph.value_or(false) || kind.left_since.empty(), "compile",
                    "expected a step that can be recorded (compile.fullgraph), got one of the ", name_of(kind), ": ",
                    kind.left_since);
}

void TorchRunnerBase::Internals::StepTapes::log_replays(const Kind& kind) {
  bool& logged = logged_replays_.at(static_cast<std::size_t>(kind.mode));
  if (!logged) [[unlikely]] {
    logged = true;
    const bool trains = kind.mode == RunnerMode::train;
    const char* const name = trains ? "train" : kind.mode == RunnerMode::evaluate ? "evaluate" : "infer";
    runner_.logger().info(concat("compile: the first ", name, "_step is replayed: its operators, metrics",
                                 trains ? ", meters and updates" : " and meters", "; its other code no longer runs"));
  }
}

void TorchRunnerBase::Internals::StepTapes::log_report() {
  const CompileReport now = report();
  const std::int64_t all = now.eager + now.recorded + now.checked + now.replayed;
  runner_.logger().info(concat("compile: ", now.replayed, " of ", all, " steps replayed, by ", now.tapes,
                               now.tapes == 1 ? " tape" : " tapes"));
}

void TorchRunnerBase::Internals::StepTapes::explain(Kind& kind) {
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
