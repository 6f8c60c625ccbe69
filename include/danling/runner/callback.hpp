// Callbacks: the typed events of a run and the class that receives them.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <danling/core/result.hpp>
#include <danling/runner/mode.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

class BaseRunner;
class ResultHistory;

/// An event, with the runner that sends it. A callback may request a stop (request_stop), a save (request_save) or an
/// evaluation (request_evaluation) at the end of the accumulation window, or end training (end_training) after the
/// epoch or, in step mode, after the window. A single rank may request these; all ranks must call save_checkpoint.
struct Event {
  BaseRunner& runner;
};

/// train() begins, with all components built and restored, or train() has ended.
struct RunEvent : Event {
  const std::vector<std::string>& train_splits;
  const std::vector<std::string>& evaluate_splits;
};

/// A round: an epoch, or in step mode a pass over the splits or the steps between two evaluations.
struct RoundEvent : Event {
  std::int64_t index;    ///< from 0
  const Result& result;  ///< by split; only splits that are done
};

/// A row of the results: one per epoch, or in step mode one per evaluation.
struct ResultEvent : Event {
  std::int64_t index;  ///< of the epoch, from 0; or the step
  const Result& result;
  const ResultHistory& results;  ///< with this row
};

/// A loop over a split begins or ends.
struct SplitEvent : Event {
  const std::string& split;
  RunnerMode mode;
  std::int64_t done;     ///< steps of the pass: at its beginning those before a resume
  std::int64_t total;    ///< micro-batches, or in step mode updates; 0 if unknown
  const Result& result;  ///< at the end: the averages
};

/// One training micro-batch.
struct StepEvent : Event {
  const std::string& split;
  std::int64_t iteration;  ///< micro-batches of this pass that are done
  std::int64_t done;       ///< of the pass: micro-batches, or in step mode updates
  const at::Tensor& loss;  ///< on its device: reading it waits for the device; may be undefined
  std::int64_t samples;
  std::int64_t tokens;  ///< without padding; 0 if the batch does not count them
  bool closes;          ///< all accumulation windows end with this micro-batch
  bool updated;         ///< an optimizer ran; on a device it may have skipped non-finite gradients
  std::chrono::steady_clock::time_point time;
};

/// Before an update of one model, which a check may still skip: its gradients are complete and summed over the ranks,
/// but not divided or clipped.
struct GradientsEvent : Event {
  const std::string& model;  ///< of one of several models; empty for `model`
  /// The gradient of the loss is a parameter's gradient divided by `divisor` and, if defined, by `loss_scale`. 0 if no
  /// target of the window counts; then no update follows.
  double divisor;
  const at::Tensor& loss_scale;  ///< scalar on the device
  /// The model's parameters by name; of a sharded model this rank's rows, which hold the gradients.
  std::vector<std::pair<std::string, at::Tensor>> parameters() const;
};

/// A log boundary or the end of a pass, with numbers over all ranks; at a boundary of an evaluation, only of this rank.
struct LogEvent : Event {
  const std::string& split;
  RunnerMode mode;
  std::optional<std::int64_t> iteration;  ///< empty at the end of a pass
  const Result& values;                   ///< of the last batch; at the end of a pass the averages
  const Result& averages;                 ///< of the pass so far
  const Result& telemetry;                ///< times and rates
};

/// A save was taken; with `async` the file is still being written.
struct SaveEvent : Event {
  const std::string& name;
  bool last;  ///< the last save of the run
  bool best;
};

struct RestoreEvent : Event {
  const std::filesystem::path& path;  ///< empty if loaded from a State
};

/// The run stops after a signal, a request or the time limit; a training run is already saved.
struct StopEvent : Event {
  int signal;  ///< 0: the time limit
};

/// train() ends with an exception, which the caller receives.
struct ExceptionEvent : Event {
  const std::exception& error;
};

/// Base class of callbacks. Derive, mark overrides with `override` (so that a misspelt name does not compile), and call
/// `runner.add(...)`. The training thread calls the functions on every rank: first the library's callbacks (records,
/// console, early stopping), then the program's in the order of add(). Do not step the optimizer, zero gradients or
/// change counters. An exception ends the run as an Error that names the callback and the function; Stopped passes
/// unchanged.
class Callback {
 public:
  virtual ~Callback();

  /// Name in messages and key of the state; by default the class name. Must be unique.
  virtual std::string name() const;

  // Called on every rank; on_save on ranks that write.

  /// Once per train(), and before the first batch of train_on_batch(), unless is_finished(); in train() also if no
  /// epoch or step is left.
  virtual void on_run_begin(const RunEvent&) {}
  /// Once, when training has ended without a stop or an error and all files are on disk.
  virtual void on_run_end(const RunEvent&) {}
  /// Once per round, before its training; again when a resumed run continues the round.
  virtual void on_round_begin(const RoundEvent&) {}
  /// Before the round's save.
  virtual void on_round_end(const RoundEvent&) {}
  /// Once per row of the results, before the save that may mark it as best.
  virtual void on_result(const ResultEvent&) {}
  /// Once per training split of a round, before its first batch; again when a resumed run continues the pass.
  virtual void on_train_begin(const SplitEvent&) {}
  /// After the split's last batch, with numbers over all ranks.
  virtual void on_train_end(const SplitEvent&) {}
  /// After each training micro-batch, before its log line and save. Overriding it costs one call per step.
  virtual void on_step(const StepEvent&) {}
  /// At the end of each window, before its update; before the first, `global_step` is 0. Overriding it costs one call
  /// per update. Do not change gradients here, but in an override of optimizer_step().
  virtual void on_gradients(const GradientsEvent&) {}
  /// At each `log_interval` of training, about every 5 s of an evaluation, and at the end of each pass.
  virtual void on_log(const LogEvent&) {}
  /// Once per evaluation of a split, before its first batch and after its last: in a round, in evaluate(), or in a loop
  /// that the program owns.
  virtual void on_evaluate_begin(const SplitEvent&) {}
  virtual void on_evaluate_end(const SplitEvent&) {}
  /// After each due save, once the state is copied.
  virtual void on_save(const SaveEvent&) {}
  /// After each load_checkpoint() and resume, with all components restored.
  virtual void on_restore(const RestoreEvent&) {}
  /// Before Stopped is thrown.
  virtual void on_stop(const StopEvent&) {}
  /// Before train(), train_on_batch() or finish_training() rethrows a std::exception after on_run_begin, except Stopped
  /// and DistributedError.
  virtual void on_exception(const ExceptionEvent&) {}

  /// Saved in each checkpoint under name() unless null, the default. Called when a checkpoint is built.
  virtual State state_dict() const { return {}; }
  /// Called when a checkpoint with this callback's state is loaded. Throw StateError if the state does not fit.
  virtual void load_state_dict(const State&) {}
};

namespace detail {

/// Frequent events that a callback receives.
struct Listens {
  bool steps = false, gradients = false;
};

/// The frequent events whose function `T` overrides.
template <class T>
constexpr Listens listens() {
  Listens out{true, true};  // for overrides that are not public
  if constexpr (requires { &T::on_step; }) {
    out.steps = !std::same_as<decltype(&T::on_step), void (Callback::*)(const StepEvent&)>;
  }
  if constexpr (requires { &T::on_gradients; }) {
    out.gradients = !std::same_as<decltype(&T::on_gradients), void (Callback::*)(const GradientsEvent&)>;
  }
  return out;
}

}  // namespace detail

/// Callbacks in call order.
class CallbackList {
 public:
  /// Adds a callback of the program. @throws ConfigError when its name is taken.
  void add(std::shared_ptr<Callback> callback, detail::Listens listens);
  /// Adds a callback of the library: it is called before the program's, and its exceptions pass unchanged.
  void add_own(std::shared_ptr<Callback> callback, detail::Listens listens = {});
  /// add_own(), but before all other callbacks.
  void add_own_first(std::shared_ptr<Callback> callback);
  /// Sends no further step events to `callback`.
  void end_steps(const Callback& callback);

  bool has_step_listeners() const { return !step_listeners_.empty(); }
  bool has_gradient_listeners() const { return !gradient_listeners_.empty(); }

  /// Calls `function` of each callback with the event; `name` is its name, for errors.
  template <class E>
  void notify(void (Callback::*function)(const E&), std::string_view name, const E& event) const {
    notify_those(all_, function, name, event);  // a callback may add another
  }
  void notify_step(const StepEvent& event) const {
    notify_those(step_listeners_, &Callback::on_step, "on_step", event);
  }
  void notify_gradients(const GradientsEvent& event) const {
    notify_those(gradient_listeners_, &Callback::on_gradients, "on_gradients", event);
  }

  /// {name: state} of callbacks that have a state.
  State state_dict() const;
  /// @return the names in `state` that match no callback
  std::vector<std::string> load_state_dict(const State& state) const;

 private:
  struct Entry {
    std::shared_ptr<Callback> callback;
    bool own;
  };
  static void insert(std::vector<Entry>& list, const Entry& entry);
  void insert(const Entry& entry, detail::Listens listens);

  template <class F>
  static void guarded(const Entry& entry, const F& call, std::string_view expected, std::string_view function = "") {
    try {
      call();
    } catch (...) {
      rethrow(entry, expected, function);
    }
  }
  /// Rethrows an exception of the program's callback as an Error that names the callback and its function.
  [[noreturn]] static void rethrow(const Entry& entry, std::string_view expected, std::string_view function);

  template <class E>
  static void notify_those(const std::vector<Entry>& list, void (Callback::*function)(const E&), std::string_view name,
                           const E& event) {
    for (std::size_t i = 0; i < list.size();) {
      const Entry entry = list[i];  // NOLINT(performance-unnecessary-copy-initialization): the call may change the list
      guarded(entry, [&] { ((*entry.callback).*function)(event); }, "return from ", name);
      i += i < list.size() && list[i].callback != entry.callback ? 0 : 1;  // the callback may have left the list
    }
  }

  std::vector<Entry> all_;
  std::vector<Entry> step_listeners_, gradient_listeners_;
};

}  // namespace danling::inline v0
