// Recorded steps (`compile`): which are recorded, checked, replayed, or left as they are.
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

/// How many steps of a kind run before it is recorded, and to compare its speed, by which clock. Tests have others.
struct TapeSchedule {
  std::int64_t warm = 3, trial = 10;
  double (*now)() = steady_seconds;
};
TapeSchedule& tape_schedule();
}  // namespace detail

/// The tapes of a runner. A kind of step has a tape of its own: training, evaluation or inference, the layout of its
/// batch, which parameters have or want gradients, which modules train. Each kind passes through the phases below;
/// every step of them is a step of the run, with the same bits.
class TorchRunnerBase::StepTapes {
 public:
  explicit StepTapes(TorchRunnerBase& runner);
  ~StepTapes();

  /// Null unless the config asks for recorded steps.
  static std::shared_ptr<StepTapes> build(TorchRunnerBase& runner);

  /// A loop begins: models, parameters or the criterion may be other ones than before.
  void begin_loop();
  /// Computes one step, by `eager` or by its tape. @param parts  of its batch, on their device
  at::Tensor run(RunnerMode mode, const detail::BatchParts& parts, const std::function<at::Tensor()>& eager);
  /// Sees the step that is recorded or checked; null in all others, and in what replays run as it is.
  tape::StepObserver* observing() const { return tape::observer() == observing_ ? observing_ : nullptr; }
  /// A step leaves numbers of its optimizers as they are expected to be; an update, and schedules in it, may not.
  void expect_settings();
  void check_settings() const;
  /// Logs how many steps were replayed.
  void log_report();
  CompileReport report() const;

  /// While it lives, steps run as they are.
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
  /// In their order; a kind that fails ends in the last one.
  enum class Phase {
    warm,    ///< runs as it is: many programs have kinds that come once
    record,  ///< twice, to see what differs
    check,   ///< eager and replayed, compared
    trial,   ///< eager, then replayed, timed
    replay,
    eager,
  };
  struct Kind {
    std::vector<std::int64_t> key;
    RunnerMode mode = RunnerMode::train;
    Phase phase = Phase::warm;
    std::int64_t count = 0;                            ///< of steps in the phase
    std::int64_t last_step = 0, last_loop = 0;         ///< their numbers
    std::int64_t replays = 0;                          ///< since the tape was made
    std::int64_t next_check = 10, unchecked = 0;       ///< replays
    double eager_seconds = 0.0, replay_seconds = 0.0;  ///< the least of a trial
    int lost_trials = 0;
    int recorded_anew = 0;   ///< since other numbers of a batch came
    int ended_early = 0;     ///< replays one after another whose condition did not hold
    std::string left_since;  ///< why it cannot be replayed: of phase `eager`
    std::optional<tape::Recording> first;
    std::vector<std::int64_t> counts;  ///< BatchParts::counts of the first recording
    std::vector<bool> counts_bind;     ///< the second one had the same: nothing shows that the step does not read it
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
  tape::Surroundings surroundings(const tape::Tensors& batch) const;
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
  /// @param is_fault  the step cannot be replayed; else it need not be
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
  bool is_stale_ = true;  // `held_` and what follows from it
  std::uint64_t settings_ = 0;
  std::int64_t steps_ = 0, loops_ = 0;
  tape::StepObserver* observing_ = nullptr;
  std::set<std::string> logged_;
  std::array<bool, 3> logged_replays_ = {};  // by mode
  CompileReport report_;
};

}  // namespace danling::inline v0
