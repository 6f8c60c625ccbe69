// Trains for a finder: real updates, after which everything is as before.
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

#include "runner/loss_probe.hpp"
#include "runner/services.hpp"

namespace danling::inline v0 {

class TorchRunnerBase::Finder {
 public:
  /// @throws StateError inside of a training or evaluation, or with a loop of the program in progress
  Finder(TorchRunnerBase& runner, std::string_view operation);

  /// Calls `work`, which trains by update(), then restores models, optimizers, schedules, generators, counters,
  /// metrics, tracked objects and everything else of the run, also after an exception. Then throws Stopped if `work`
  /// was stopped.
  void run(const std::function<void()>& work);

  /// One accumulation window.
  struct Update {
    double loss = 0.0;         ///< mean over the window, over all ranks; not finite if no target counted
    std::int64_t samples = 0;  ///< of this rank
    bool updated = false;      ///< any parameters, on any rank
  };
  Update update();
  /// Whether a stop was requested; `work` must then return.
  bool stopped() const { return stopped_.stop; }

  /// The training splits, each from its first batch; those of the run until read() is called.
  void read(std::vector<std::pair<std::string, std::shared_ptr<data::LoaderBase>>> loaders);
  /// Ends the visits of the loaders and drops those of read().
  void end_reading();

  /// The learner whose losses update() returns: that of the model `name`, or the only one.
  Learner& select(const std::string& name);

 private:
  data::LoaderBase& next_batch();
  void combine(Update& update, double weight) const;
  void restore();

  struct Before;  // what a checkpoint does not hold

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
