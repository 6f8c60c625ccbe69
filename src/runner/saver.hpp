// Saves of a run: when they are due, the states of all ranks, the best checkpoint, and failures.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <danling/runner/base_runner.hpp>

#include <runner/services.hpp>

namespace danling::inline v0 {

class BaseRunner::Internals::Saver {
 public:
  explicit Saver(BaseRunner& runner) : runner_(runner) {}

  /// @return true if this process saved, or will save at the end of the window
  bool save(const detail::SaveCall& call);
  /// Collective. The states stay available while the returned object lives; null with one process.
  std::shared_ptr<State> gather_rank_states();
  /// Runs the saves that were requested inside an accumulation window.
  void save_deferred();
  /// Ends training: writes the last checkpoint, the exported model and all records to disk.
  void save_last();
  /// Saves the model of a finished run, if the process that finished it died before.
  void save_finished_model();

  /// Reports saves that failed on their thread since the last call: logs a warning, or with `checkpoint.on_error: stop`
  /// throws CheckpointError. Called at every step boundary; without failures it costs two loads.
  void poll();
  void on_failure(const std::string& text);

  /// Makes best.pth and best.json hold the same result; logs a warning if it is not the best result.
  void reconcile_best();
  /// The weights of the best result, in the layout of model_state_dict(), and their name, for `key` of the config.
  /// Empty if the model already has them; empty with a warning if they are not on disk.
  std::optional<std::pair<State, std::string>> best_weights(std::string_view key);
  std::string weights_name() const;  ///< of the weights in the model: `epoch 30 (last)`, `epoch 28 (last, best)`
  bool exports_best() const;
  void export_best();   ///< as `model`, with `checkpoint.export_with: best`
  void export_files();  ///< next to `model`, with its weights

 private:
  CheckpointRequest make_request(const detail::SaveCall& call) const;
  void defer(detail::SaveCall call);
  State rank_state();
  void log_warning();
  bool republish_best(std::int64_t index);
  bool has_best_weights() const;

  BaseRunner& runner_;
};

}  // namespace danling::inline v0
