// What happens in a run, as typed events, and the class that listens to them.
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
class ResultBook;

/// The runner whose event it is. A callback may ask it to stop (request_stop), save (request_save) and evaluate
/// (request_evaluation), each where the accumulation window ends, and to end training (end_training) with the epoch or,
/// by steps, with the window. One of several ranks may ask alone; save_checkpoint is called by all.
struct Event {
  BaseRunner& runner;
};

/// train() begins, after everything is built and restored, or has ended.
struct RunEvent : Event {
  const std::vector<std::string>& train_splits;
  const std::vector<std::string>& evaluate_splits;
};

/// A round: an epoch, or in step mode a pass over the splits or what lies between two evaluations.
struct RoundEvent : Event {
  std::int64_t index;    ///< from 0
  const Result& result;  ///< by split, as far as it is known
};

/// A row of the results: each epoch, in step mode each evaluation.
struct ResultEvent : Event {
  std::int64_t index;  ///< of the epoch from 0, or the step
  const Result& result;
  const ResultBook& results;  ///< with this row
};

/// A loop over a split begins or ends.
struct SplitEvent : Event {
  const std::string& split;
  RunnerMode mode;
  std::int64_t done;     ///< steps that were done before: of a resumed run
  std::int64_t total;    ///< steps; 0 where it is not known
  const Result& result;  ///< at the end the averages
};

/// One training micro-batch.
struct StepEvent : Event {
  const std::string& split;
  std::int64_t iteration;  ///< micro-batches of this pass that are done
  std::int64_t done;       ///< of the pass: micro-batches, in step mode updates
  const at::Tensor& loss;  ///< on its device, which reading it waits for; may be undefined
  std::int64_t samples;
  bool closes;   ///< all accumulation windows ended with it
  bool updated;  ///< an optimizer changed its parameters
  std::chrono::steady_clock::time_point time;
};

/// A log boundary or the end of a pass, with the numbers of all ranks; a boundary of an evaluation has those of this
/// one.
struct LogEvent : Event {
  const std::string& split;
  RunnerMode mode;
  std::optional<std::int64_t> iteration;  ///< nothing at the end of a pass
  const Result& values;                   ///< of the last batch; at the end of a pass the averages
  const Result& averages;                 ///< of the pass so far
  const Result& telemetry;                ///< times and rates
};

/// A save was taken: with `async` the disk is still at work.
struct SaveEvent : Event {
  const std::string& name;
  bool last;  ///< the last of the run
  bool best;
};

struct RestoreEvent : Event {
  const std::filesystem::path& path;  ///< empty where a state was given
};

/// The run stops at a signal, or since somebody asked; in training it is saved by now.
struct StopEvent : Event {
  int signal;
};

/// train() ends with an exception; it goes on to the caller.
struct ExceptionEvent : Event {
  const std::exception& error;
};

/// Derive, override what you listen to, and `runner.add(...)`; an override with a wrong name does not compile where it
/// says `override`. Functions are called by the thread that trains, on every rank, the library's own callbacks first
/// (records, console, early stopping), then those of the program in the order in which they were added. Do not step the
/// optimizer, zero gradients or change counters. An exception ends the run, with the callback's name in its message.
class Callback {
 public:
  virtual ~Callback();

  /// In messages and as the key of its state: the class by default. Two callbacks of one name are refused.
  virtual std::string name() const;

  // All are called on every rank, on_save on those that write.

  /// Once per train() or first train_on_batch(), unless an earlier start has finished the run.
  virtual void on_run_begin(const RunEvent&) {}
  /// Once, when training has ended by itself and everything is on disk.
  virtual void on_run_end(const RunEvent&) {}
  /// Once per round, before its training; of a round that a resumed run goes on with, again.
  virtual void on_round_begin(const RoundEvent&) {}
  /// Before the round's save.
  virtual void on_round_end(const RoundEvent&) {}
  /// Once per row of the results, before the save that may call it the best.
  virtual void on_result(const ResultEvent&) {}
  /// Once per training split of a round, before its first batch, also of a pass that a resumed run goes on with.
  virtual void on_train_begin(const SplitEvent&) {}
  /// After its last batch, when the numbers of all ranks are known.
  virtual void on_train_end(const SplitEvent&) {}
  /// After each training micro-batch, before the log line and the save that it brings. Overriding it costs a call per
  /// step, nothing else.
  virtual void on_step(const StepEvent&) {}
  /// At each `log_interval` of training, every few seconds of a long evaluation, and at the end of each pass.
  virtual void on_log(const LogEvent&) {}
  /// Once per evaluation of a split, before its first batch and after its last: of a round, of evaluate(), of a host's.
  virtual void on_evaluate_begin(const SplitEvent&) {}
  virtual void on_evaluate_end(const SplitEvent&) {}
  /// After each save that was due, once the state is copied.
  virtual void on_save(const SaveEvent&) {}
  /// After each load_checkpoint() and resume, when all components have their state.
  virtual void on_restore(const RestoreEvent&) {}
  /// Before Stopped is thrown.
  virtual void on_stop(const StopEvent&) {}
  /// Before train() or train_on_batch() passes an exception on, other than Stopped and those of lost processes.
  virtual void on_exception(const ExceptionEvent&) {}

  /// Saved in each checkpoint under its name; a null state, as here, is not. Called where a checkpoint is built.
  virtual State state_dict() const { return {}; }
  /// Called when a checkpoint that has its state is loaded. Throw StateError where it does not fit.
  virtual void load_state_dict(const State&) {}
};

namespace detail {

/// Whether a class overrides on_step, so that it is to be called at each step.
template <class T>
constexpr bool listens_to_steps() {
  if constexpr (requires { &T::on_step; }) {
    return !std::same_as<decltype(&T::on_step), void (Callback::*)(const StepEvent&)>;
  } else {
    return true;  // its override is not public
  }
}

}  // namespace detail

/// Callbacks in their order.
class CallbackList {
 public:
  /// Of the program. `steps`: it listens to each step. @throws ConfigError where one has this name already.
  void add(std::shared_ptr<Callback> callback, bool steps);
  /// Of the library: called before those of the program, and its exceptions pass as they are.
  void add_own(std::shared_ptr<Callback> callback, bool steps);

  bool has_step_listeners() const { return !step_listeners_.empty(); }

  /// Calls `function` of each with the event.
  template <class E>
  void notify(void (Callback::*function)(const E&), const E& event) const {
    for (std::size_t i = 0; i < all_.size(); ++i) {  // a callback may add another
      const Entry entry = all_[i];
      guarded(entry, [&] { ((*entry.callback).*function)(event); });
    }
  }
  void notify_step(const StepEvent& event) const {
    for (std::size_t i = 0; i < step_listeners_.size(); ++i) {
      const Entry entry = step_listeners_[i];
      guarded(entry, [&] { entry.callback->on_step(event); });
    }
  }

  /// {name: state} of those that have one.
  State state_dict() const;
  /// @return the names in `state` that no callback has
  std::vector<std::string> load_state_dict(const State& state) const;

 private:
  struct Entry {
    std::shared_ptr<Callback> callback;
    bool own;
  };
  static void insert(std::vector<Entry>& list, const Entry& entry);

  template <class F>
  static void guarded(const Entry& entry, const F& call, std::string_view expected = "return") {
    try {
      call();
    } catch (...) {
      rethrow(entry, expected);
    }
  }
  /// An exception of the program's callback becomes an Error that names it.
  [[noreturn]] static void rethrow(const Entry& entry, std::string_view expected);

  std::vector<Entry> all_;
  std::vector<Entry> step_listeners_;
};

}  // namespace danling::inline v0
