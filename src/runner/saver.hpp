// Saves as the run sees them: when, with the state of all ranks, which is the best, and what a failed one does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <danling/runner/base_runner.hpp>

#include "runner/services.hpp"

namespace danling::inline v0 {

class BaseRunner::Saver {
 public:
  explicit Saver(BaseRunner& runner) : runner_(runner) {}

  /// @return whether this process saved, or will where the window ends
  bool save(const detail::SaveOrder& order);
  /// Collective. The states are held as long as what it gives lives; null where there is one process.
  std::shared_ptr<State> gather_rank_states();
  /// Takes the saves that were asked for while the run was not settled.
  void save_deferred();
  /// Ends a training: the last checkpoint, the exported model and all records are on disk afterwards.
  void save_last();
  /// Saves the model of a run that is done already: the process that finished it may have died before it could.
  void save_finished_model();

  /// Reports saves that failed on their own thread since the last call: a warning, or with `checkpoint.on_error: stop`
  /// a CheckpointError. Called at every step boundary; it costs two loads when there is nothing to tell.
  void poll();
  void on_failure(const std::string& text);

  /// best.pth and best.json hold the same result; where that is not the best one, the run says so.
  void settle_best();
  /// The weights of the best result, as model_state_dict() gives them, and their name, where `key` of the config asks
  /// for them. Nothing where the model has them already, and with a warning where they are not on disk.
  std::optional<std::pair<State, std::string>> best_weights(std::string_view key);
  std::string weights_name() const;  ///< of those in the model: `epoch 30 (last)`, `epoch 28 (last, best)`
  bool exports_best() const;
  void export_best();  ///< as `model`, where checkpoint.export_with asks for it

 private:
  CheckpointRequest request_of(const detail::SaveOrder& order) const;
  void put_off(detail::SaveOrder order);
  State rank_state();
  void log_notice();
  bool remake_best(std::int64_t index);
  bool has_best_weights() const;

  BaseRunner& runner_;
};

}  // namespace danling::inline v0
