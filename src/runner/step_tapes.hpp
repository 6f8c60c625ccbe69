// Recorded steps (`compile`): which are recorded, checked, replayed, or left as they are.
#pragma once

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
/// How many steps of a kind run before it is recorded, and to compare its speed. Tests have fewer.
struct TapeSchedule {
  std::int64_t warm = 3, trial = 10;
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

  /// Called when a loop begins. Models, parameters or the criterion may be other ones than before.
  void begin_loop();
  /// Computes one step, by `eager` or by its tape. @param parts  of its batch, on their device
  at::Tensor run(RunnerMode mode, const detail::BatchParts& parts, const std::function<at::Tensor()>& eager);
  /// Sees the step that is recorded or checked; null in all others.
  tape::StepObserver* observing() const { return observing_; }
  /// Logs how many steps were replayed.
  void log_report();
  CompileReport report() const;

  /// While it lives, steps run as they are.
  class Off {
   public:
    explicit Off(TorchRunnerBase& runner) : runner_(runner), tapes_(std::exchange(runner.tapes_, nullptr)) {}
    ~Off() { runner_.tapes_ = std::move(tapes_); }
    Off(const Off&) = delete;
    Off& operator=(const Off&) = delete;

   private:
    TorchRunnerBase& runner_;
    std::shared_ptr<StepTapes> tapes_;
  };

 private:
  /// In their order; a kind that fails ends in the last one.
  enum class Phase {
    warm,    ///< runs as it is, and is timed
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
    std::int64_t used = 0;                             ///< number of its last step
    std::int64_t replays = 0;                          ///< since the tape was made
    std::int64_t next_check = 10, unchecked = 0;       ///< replays
    std::int64_t loop = 0;                             ///< of its last step
    double eager_seconds = 0.0, replay_seconds = 0.0;  ///< the least
    int lost_trials = 0;
    std::optional<tape::Recording> first;
    std::vector<std::int64_t> counts;  ///< BatchParts::counts of the first recording
    bool counts_bind = false;          ///< the second one had the same: nothing shows that the step does not read them
    std::unique_ptr<tape::Tape> tape;
  };

  void list_tensors();
  std::uint64_t identity() const;
  std::uint64_t modes() const;
  void write_key(RunnerMode mode, const detail::BatchParts& batch);
  Kind& find(RunnerMode mode);
  void make_room();
  tape::Surroundings surroundings(const tape::Tensors& batch) const;
  bool is_recordable(RunnerMode mode);

  at::Tensor run_eager(const std::function<at::Tensor()>& eager);
  at::Tensor record(Kind& kind, const detail::BatchParts& parts, const std::function<at::Tensor()>& eager);
  at::Tensor check_replay(Kind& kind, const tape::Tensors& batch, const std::function<at::Tensor()>& eager);
  at::Tensor try_replay(Kind& kind, const tape::Tensors& batch, const std::function<at::Tensor()>& eager);
  at::Tensor replay(Kind& kind, const tape::Tensors& batch, const std::function<at::Tensor()>& eager);
  static Phase after_check();
  void build_tape(Kind& kind, tape::Recording recording);
  void leave_eager(Kind& kind, const std::string& why, bool warn);
  void explain(Kind& kind);
  std::string name_of(const Kind& kind) const;

  TorchRunnerBase& runner_;
  CompileConfig config_;
  std::shared_ptr<tape::Arena> arena_ = std::make_shared<tape::Arena>();
  std::vector<std::unique_ptr<Kind>> kinds_;
  std::vector<std::int64_t> key_;  // of the step in progress
  tape::Tensors held_, buffers_;
  std::vector<std::string> names_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::uint64_t identity_ = 0;
  std::int64_t steps_ = 0, unknown_ = 0;
  std::int64_t loops_ = 0;
  tape::StepObserver* observing_ = nullptr;
  std::set<std::string> said_;
  CompileReport report_;
};

}  // namespace danling::inline v0
