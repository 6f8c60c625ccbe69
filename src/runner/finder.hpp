// Trains for a finder: runs real updates, then restores all state.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/data/loader_visit.hpp>
#include <danling/runner/torch_runner_base.hpp>

#include <runner/loss_probe.hpp>
#include <runner/services.hpp>

namespace danling::inline v0 {

class TorchRunnerBase::Internals::Finder {
 public:
  /// @throws StateError inside training or evaluation, or while a loop of the program is in progress
  Finder(TorchRunnerBase& runner, std::string_view operation);

  /// Calls `work`, which trains by update(). Then restores models, optimizers, schedules, generators, counters,
  /// metrics, tracked objects and everything else of the run, also after an exception. Then throws Stopped if `work`
  /// was stopped.
  void run(const std::function<void()>& work);

  /// One accumulation window.
  struct Update {
    double loss = 0.0;         ///< mean over the window, over all ranks; not finite if no target counts
    std::int64_t samples = 0;  ///< of this rank
    bool updated = false;      ///< parameters changed on some rank
  };
  Update update();
  /// True when a stop was requested; `work` must then return.
  bool stopped() const { return stopped_.stop; }

  /// Sets the loaders of the training splits, read from their first batches; default: the run's loaders.
  void read(std::vector<std::pair<std::string, std::shared_ptr<data::LoaderBase>>> loaders);
  /// Ends the reading of the loaders and drops those of read().
  void end_reading();

  /// Selects the learner whose losses update() returns: that of the model `name`, or the only one.
  Learner& select(const std::string& name);

 private:
  data::LoaderBase& next_batch();
  void combine(Update& update, double weight) const;
  void restore();

  struct Before;  // state that a checkpoint does not hold

  TorchRunnerBase& runner_;
  std::string operation_;
  State state_;
  std::shared_ptr<Before> before_;
  std::vector<std::pair<std::string, std::shared_ptr<data::LoaderBase>>> own_loaders_;
  std::vector<std::pair<std::string, data::LoaderBase*>> loaders_;
  std::optional<data::LoaderVisit> visit_;
  std::size_t split_ = 0;
  std::int64_t epoch_ = 0;
  std::optional<detail::LossProbe> probe_;
  StepPacket stopped_ = {};
};

}  // namespace danling::inline v0
