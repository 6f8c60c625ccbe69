// Recorded steps (`compile`): decides which steps are recorded, checked, replayed, or run eagerly.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/runner/torch_runner_base.hpp>

#include <tape/recorder.hpp>
#include <tape/tape.hpp>

namespace torch::nn {
class Module;
}

namespace danling::inline v0 {

namespace detail {
/// Seconds of a steady clock.
double steady_seconds();

/// Number of eager steps before a kind is recorded and for timing, and the clock. Tests replace them.
struct TapeSchedule {
  std::int64_t warm = 3, trial = 10;
  double (*now)() = steady_seconds;
};
TapeSchedule& tape_schedule();
}  // namespace detail

/// The tapes of a runner. Each kind of step has a tape: training, evaluation or inference, the layout of its batch,
/// which parameters have or need gradients, which modules train. Each kind passes through the phases below; every step
/// in them is a step of the run, with the same bits.
class TorchRunnerBase::Internals::StepTapes {
 public:
  explicit StepTapes(TorchRunnerBase& runner);
  ~StepTapes();

  /// Null unless the config enables recorded steps.
  static std::shared_ptr<StepTapes> build(TorchRunnerBase& runner);

  /// Called when a loop begins: models, parameters or the criterion may have changed.
  void begin_loop();
  /// Runs one step, by `eager` or by its tape. @param parts  of its batch, on their device
  at::Tensor run(RunnerMode mode, const detail::BatchParts& parts, const std::function<at::Tensor()>& eager);
  /// Observes a step that is recorded or checked; null in all other steps, and in the eager parts of replays.
  tape::StepObserver* observing() const { return tape::observer() == observing_ ? observing_ : nullptr; }
  /// Records the optimizers' numbers as expected at the end of a step; an update and its schedules may change them.
  void expect_settings();
  void check_settings() const;
  /// Logs how many steps were replayed.
  void log_report();
  CompileReport report() const;

  /// Steps run eagerly for its lifetime.
  class EagerScope {
   public:
    explicit EagerScope(TorchRunnerBase& runner) : runner_(runner), tapes_(std::exchange(runner.tapes_, nullptr)) {}
    ~EagerScope() { runner_.tapes_ = std::move(tapes_); }
    EagerScope(const EagerScope&) = delete;
    EagerScope& operator=(const EagerScope&) = delete;

   private:
    TorchRunnerBase& runner_;
    std::shared_ptr<StepTapes> tapes_;
  };

 private:
  /// In order; a kind that fails goes to the last one.
  enum class Phase {
    warm,    ///< runs eagerly: many programs have kinds that occur once
    record,  ///< twice, to find what differs
    check,   ///< eager and replayed, compared
    trial,   ///< eager, then replayed, timed
    replay,
    eager,
  };
  struct Kind {
    std::vector<std::int64_t> key;
    RunnerMode mode = RunnerMode::train;
    Phase phase = Phase::warm;
    std::int64_t count = 0;                            ///< steps in the phase
    std::int64_t last_step = 0, last_loop = 0;         ///< numbers of the last step and loop
    std::int64_t replays = 0;                          ///< since the tape was built
    std::int64_t next_check = 10, unchecked = 0;       ///< replays
    double eager_seconds = 0.0, replay_seconds = 0.0;  ///< minimum of a trial
    int lost_trials = 0;
    int recorded_anew = 0;   ///< since other numbers occurred in a batch
    int ended_early = 0;     ///< consecutive replays whose condition failed
    std::string left_since;  ///< why it cannot be replayed (phase `eager`)
    std::optional<tape::Recording> first;
    std::vector<std::int64_t> counts;  ///< BatchParts::counts of the first recording
    std::vector<bool> counts_bind;     ///< the second recording had the same: the step may read it
    std::unique_ptr<tape::Tape> tape;
  };

  void list_tensors();
  void refresh();
  std::uint64_t model_hash() const;
  std::uint64_t component_hash() const;
  std::uint64_t mode_hash() const;
  std::uint64_t sharing_hash();
  void write_key(RunnerMode mode, const detail::BatchParts& batch);
  Kind* find(RunnerMode mode);
  bool make_room();
  static bool fits_counts(const Kind& kind, const std::vector<std::int64_t>& counts);
  std::uint64_t setting_hash() const;
  void give_room(const Kind& kind);
  tape::StepTensors surroundings(const tape::Tensors& batch) const;
  bool is_recordable(RunnerMode mode);

  at::Tensor run_eager(const std::function<at::Tensor()>& eager);
  at::Tensor record(Kind& kind, const detail::BatchParts& parts, const std::function<at::Tensor()>& eager);
  at::Tensor check_replay(Kind& kind, const tape::Tensors& batch, const std::function<at::Tensor()>& eager);
  at::Tensor try_replay(Kind& kind, const tape::Tensors& batch, const std::function<at::Tensor()>& eager);
  at::Tensor replay(Kind& kind, const tape::Tensors& batch, const std::function<at::Tensor()>& eager);
  static Phase after_check();
  static void plan_check(Kind& kind);
  void count_early_end(Kind& kind);
  void build_tape(Kind& kind, tape::Recording recording);
  void log_replays(const Kind& kind);
  /// @param is_fault  the step cannot be replayed; otherwise it could, but need not
  void leave_eager(Kind& kind, const std::string& why, bool is_fault);
  void check_whole(const Kind& kind) const;
  void explain(Kind& kind);
  std::string name_of(const Kind& kind) const;

  TorchRunnerBase& runner_;
  CompileConfig config_;
  std::shared_ptr<tape::Arena> arena_ = std::make_shared<tape::Arena>();
  std::vector<std::unique_ptr<Kind>> kinds_;
  std::vector<std::int64_t> key_;  // of the step in progress
  tape::Tensors held_, buffers_;
  std::vector<const void*> storages_, sorted_storages_;  // of them
  std::vector<std::string> names_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::uint64_t models_ = 0, components_ = 0;
  bool is_stale_ = true;  // `held_` and the members derived from it must be rebuilt
  std::uint64_t settings_ = 0;
  std::int64_t steps_ = 0, loops_ = 0;
  tape::StepObserver* observing_ = nullptr;
  std::set<std::string> logged_;
  std::array<bool, 3> logged_replays_ = {};  // by mode
  CompileReport report_;
};

}  // namespace danling::inline v0
