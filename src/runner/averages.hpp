// EMA and SWA of the config: the averages of each model, kept up while it trains and put into it while it is evaluated.
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
  std::vector<double> rates;                                    // of the groups before it
  std::pair<std::shared_ptr<optim::Scheduler>, bool> schedule;  // the learner's before, and whether by step
  bool needs_statistics = false;                                // of batch normalization, for SWA
  bool has_statistics = false;                                  // they are those of the present average
  bool estimating = false;                                      // they are being estimated

  /// The one that evaluation uses; null for the model's own weights. An equal average replaces the exponential one when
  /// it has statistics of its own.
  optim::WeightAverage* evaluated();
};

/// The state of a model with what its optimizer updates in place of its parameters: rows, where these are split.
NamedTensors trained_state(const Parallelism& parallelism, const ModelHandle& model);

class ModelAverages {
 public:
  std::map<std::string, AveragesOfModel> models;  ///< "" is `model`
  bool built = false;
  bool applied = false;       ///< the averages are in the models
  bool disabled = false;      ///< a test uses other weights
  bool keeps_memory = false;  ///< averages are copied into the models' memory
  /// Whole weights of averages of rows, while a checkpoint is saved.
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
class TorchRunnerBase::Averages {
 public:
  explicit Averages(TorchRunnerBase& runner) : runner_(runner) {}

  /// Whether the config switches an average on.
  static bool is_enabled(const RunnerConfig& config);

  /// Puts the averages into the models, or takes them out, for its lifetime.
  class Scope {
   public:
    Scope(const TorchRunnerBase& runner, bool applied);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    /// The state, or a copy of it where the end of the scope writes the averages into its memory again.
    State kept(State state) const;

   private:
    TorchRunnerBase& runner_;
    bool before_ = false;
  };

  /// An evaluation: estimates missing statistics, and puts the averages into the models.
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

  /// When training begins: SWA's start in this run, and its schedules.
  void prepare();
  /// After an update of a model.
  void update(Learner& learner);
  /// At the end of an epoch, before it is evaluated: SWA in a run by epochs.
  void end_epoch();
  /// After the schedules: SWA's own begins.
  void begin_schedules();
  /// When training ends: warns of averages that an early end left out.
  void end();
  /// Before an evaluation: passes over training data for SWA.
  void estimate_statistics();

  // ---- state --------------------------------------------------------------------------------------------------------

  /// Whether a state that is made now leaves the averages in the models, and takes trained_weights() beside them: other
  /// ranks may read the rows of this one.
  static bool saves_beside(const TorchRunnerBase& runner);
  /// The trained weights of a model, as its average has them, while averages are in its memory; else null.
  State trained_weights(const ModelHandle& model);
  /// Where parameters are split over ranks: averages have the layout of one process while the result lives, as
  /// Parallelism::expose() has for parameters, which it is given. Called by all ranks.
  std::shared_ptr<void> expose(std::shared_ptr<void> parameters);
  /// Adds the averages that evaluation uses to the layout of model_state_dict(), each as 'ema' beside its model.
  void add_evaluated(State& weights);
  /// That layout with the averages in place of the models' own weights.
  static State instead_of_models(State weights);
  /// Adds 'ema', 'swa' and 'averages' to the part of a model.
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
  /// The averages that have not begun.
  std::vector<Missing> missing();
  /// Warns of those that begin behind the end of the run.
  void warn_never();
  detail::ModelAverages& all();
  void build();
  bool by_epochs() const { return !runner_.is_step_mode(); }
  std::int64_t position() const;
  void set_applied(bool applied);
  /// For a checkpoint: whole, or this rank's parts for one of shards.
  State weights_of(const std::string& name, const optim::WeightAverage& average);
  State gathered(const std::string& name, const State& weights);
  /// The parts of this rank, or the whole ones where the average is of these, from whole ones or parts. Called by all
  /// ranks.
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
