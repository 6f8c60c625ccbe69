// EMA and SWA of the config: updates the averages of each model during training, and evaluates with them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <danling/optim/averaging.hpp>
#include <danling/optim/scheduler.hpp>
#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

namespace detail {

struct AveragesOfModel {
  std::optional<optim::WeightAverage> ema, swa;
  optim::SWAOptions swa_options;
  std::shared_ptr<optim::Scheduler> swa_scheduler;              // from the start of SWA on, with swa.lr
  std::vector<double> rates;                                    // of the parameter groups before SWA
  std::pair<std::shared_ptr<optim::Scheduler>, bool> schedule;  // before SWA, and whether it steps by update
  bool needs_statistics = false;                                // SWA needs statistics of batch normalization
  bool has_statistics = false;                                  // the statistics belong to the current average
  bool estimating = false;                                      // the statistics are being estimated

  /// The average that evaluation uses; null for the model's own weights. SWA replaces EMA once it has statistics.
  optim::WeightAverage* evaluated();
};

/// State of a model with the tensors that its optimizer updates in place of its parameters: rows, if these are sharded.
NamedTensors trained_state(const Parallelism& parallelism, const ModelHandle& model);

class ModelAverages {
 public:
  std::map<std::string, AveragesOfModel> models;  ///< "" is `model`
  bool built = false;
  bool applied = false;       ///< the models hold the averages
  bool disabled = false;      ///< a test uses other weights
  bool keeps_memory = false;  ///< averages are copied into the models' memory instead of exchanging it
  /// Gathered weights of sharded averages, while a checkpoint is saved.
  std::map<const optim::WeightAverage*, State> whole;

  class Disabled {
   public:
    explicit Disabled(ModelAverages* averages) : averages_(averages) { set(true); }
    ~Disabled() { set(false); }
    Disabled(const Disabled&) = delete;
    Disabled& operator=(const Disabled&) = delete;

   private:
    void set(bool on) {
      if (averages_ != nullptr) {
        averages_->disabled = on;
      }
    }
    ModelAverages* averages_;
  };
};

}  // namespace detail

/// Does nothing without `ema` and `swa` in the config.
class TorchRunnerBase::Internals::Averages {
 public:
  explicit Averages(TorchRunnerBase& runner) : runner_(runner) {}

  /// True when the config enables an average.
  static bool is_enabled(const RunnerConfig& config);

  /// Swaps the averages into the models, or out of them, for its lifetime.
  class Scope {
   public:
    Scope(const TorchRunnerBase& runner, bool applied);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    /// Returns the state, or a copy if the end of the scope overwrites its memory with the averages.
    State kept(State state) const;

   private:
    TorchRunnerBase& runner_;
    bool before_ = false;
  };

  /// Scope of an evaluation: estimates missing statistics and swaps the averages into the models.
  class Evaluated {
   public:
    explicit Evaluated(TorchRunnerBase& runner) : scope_(estimated(runner), true) {}

   private:
    static TorchRunnerBase& estimated(TorchRunnerBase& runner) {
      Averages(runner).estimate_statistics();
      return runner;
    }
    Scope scope_;
  };

  /// Called when training begins: sets SWA's start in this run, and its schedules.
  void prepare();
  /// Called after an update of a model.
  void update(Learner& learner);
  /// Called at the end of an epoch, before its evaluation: updates SWA in epoch mode.
  void end_epoch();
  /// Called after the schedules: starts SWA's schedule.
  void begin_schedules();
  /// Called when training ends: warns about averages that had not started.
  void end();
  /// Called before an evaluation: runs over training data to estimate SWA's statistics.
  void estimate_statistics();

  // ---- state --------------------------------------------------------------------------------------------------------

  /// True when a state built now leaves the averages in the models and adds trained_weights(): other ranks may read
  /// this rank's rows.
  static bool saves_beside(const TorchRunnerBase& runner);
  /// The trained weights of a model, kept by its average while the averages are in the model's memory; else null.
  State trained_weights(const ModelHandle& model);
  /// For sharded parameters: while the returned object lives, averages have the layout of one process, as parameters
  /// have under Parallelism::gather_full_state(), whose result it takes. Called by all ranks.
  std::shared_ptr<void> expose(std::shared_ptr<void> parameters);
  /// Adds the averages that evaluation uses to the layout of model_state_dict(), each as 'ema' next to its model.
  void add_evaluated(State& weights);
  /// Replaces the models' weights in that layout with the averages.
  static State instead_of_models(State weights);
  /// Adds 'ema', 'swa' and 'averages' to the state of a model.
  void save(const std::string& name, State& part);
  void load(const std::string& name, const State& part);
  /// "ema", "swa" or empty.
  std::string evaluated();

 private:
  struct Missing {
    std::string section;
    const char* unit;
    std::int64_t start, interval;
    std::optional<std::int64_t> total;
    std::int64_t first() const { return start + interval; }
    bool is_never() const { return total && first() > *total; }
  };
  /// The averages that have not started.
  std::vector<Missing> missing();
  /// Warns about averages that would start after the end of the run.
  void warn_never();
  detail::ModelAverages& all();
  void build();
  bool by_epochs() const { return !runner_.is_step_mode(); }
  std::int64_t position() const;
  void set_applied(bool applied);
  /// For a checkpoint: the whole weights, or this rank's shards if the checkpoint is sharded.
  State weights_of(const std::string& name, const optim::WeightAverage& average);
  State gathered(const std::string& name, const State& weights);
  /// Converts weights to the layout of the average: this rank's rows, or whole tensors. Takes whole weights or rows.
  /// Called by all ranks.
  State as_averaged(const std::string& name, const State& weights);
  const ModelHandle& model_of(const std::string& name) const {
    return name.empty() ? runner_.model : runner_.models.at(name);
  }
  std::int64_t batch_limit(const data::LoaderBase& loader) const;
  std::int64_t pass(const std::string& split, const std::vector<const ModelHandle*>& handles);
  void load(const std::string& name, const std::string& key, optim::WeightAverage& average, const State& part,
            const State* counters);
  void load_schedule(const std::string& name, detail::AveragesOfModel& averages, const State* saved);
  void begin_again(const std::string& name, detail::AveragesOfModel& averages);
  void restore_rates(Learner& learner, const detail::AveragesOfModel& averages);
  void bind_schedule(Learner& learner, detail::AveragesOfModel& averages);
  std::optional<std::int64_t> units(const std::string& name) const;
  optim::SWAOptions resolved(optim::SWAOptions options, std::optional<std::int64_t> total) const;

  TorchRunnerBase& runner_;
};

}  // namespace danling::inline v0
