// DeepSpeedRunner: a TorchRunner configured by DeepSpeed's JSON, with checkpoints as tagged directories.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>

#include <danling/distributed/process.hpp>
#include <danling/runner/deepspeed_checkpoints.hpp>
#include <danling/runner/deepspeed_config.hpp>
#include <danling/runner/deepspeed_schedule.hpp>
#include <danling/runner/torch_runner.hpp>

namespace danling::inline v0 {

namespace detail {
void log_deepspeed_notes(Logger& logger, const DeepSpeedNotes& notes);
std::shared_ptr<optim::Scheduler> build_deepspeed_schedule(const ConfigTree& deepspeed, optim::Optimizer* optimizer,
                                                           bool has_own, Logger& logger);
bool has_checkpoint_manager(const RunnerServices& services);
std::unique_ptr<CheckpointManager> make_deepspeed_manager(BaseRunner& runner, std::int64_t interval,
                                                          FileCheckpointManager::StateFunction full_state,
                                                          FileCheckpointManager::StateFunction model_state);
/// The weights to export in place of the model's, or null.
const State* exported_weights(const RunnerServices& services);
}  // namespace detail

/// A runner whose config has `deepspeed`: a mapping or the path of a DeepSpeed JSON file. The constructor applies it
/// (with_deepspeed), so the runner's config holds the result: `config().optim`, `config().precision`, ...
/// DeepSpeedCheckpointManager writes the checkpoints. Everything else is as in TorchRunner; DeepSpeed itself is not
/// used. Source: danling.runners.DeepSpeedRunner.
template <class B, class P = at::Tensor>
class BasicDeepSpeedRunner : public BasicTorchRunner<B, P> {
 public:
  /// DeepSpeed's effective configuration; see with_deepspeed().
  const ConfigTree& get_deepspeed_config() const { return this->config().deepspeed; }

 protected:
  /// @throws ConfigError as with_deepspeed()
  template <std::derived_from<RunnerConfig> C>
  explicit BasicDeepSpeedRunner(const C& config) : BasicDeepSpeedRunner(config, read_process_identity().world_size) {}
  /// For a program that joins `world_size` processes itself.
  template <std::derived_from<RunnerConfig> C>
  BasicDeepSpeedRunner(const C& config, std::int64_t world_size)
      : BasicDeepSpeedRunner(config, world_size, DeepSpeedNotes()) {}

  /// Sets a DeepSpeedCheckpointManager unless the program has set a manager.
  void init_checkpoint_manager() override {
    if (this->is_main_process()) {
      detail::log_deepspeed_notes(this->logger(), notes_);
    }
    if (!detail::has_checkpoint_manager(this->services())) {
      this->set_checkpoint_manager(detail::make_deepspeed_manager(
          *this, this->checkpoint_interval(), [this] { return this->state_dict(); },
          [this] {
            const State* chosen = detail::exported_weights(this->services());
            return this->exported_state_dict(chosen != nullptr ? *chosen : this->model_state_dict());
          }));
    }
    BasicTorchRunner<B, P>::init_checkpoint_manager();
  }

  /// Builds the schedule of `deepspeed.scheduler` unless the program has set a scheduler.
  void build_scheduler() override {
    if (auto made = detail::build_deepspeed_schedule(get_deepspeed_config(), this->optimizer.get(),
                                                     this->scheduler != nullptr, this->logger())) {
      this->scheduler = std::move(made);
    }
    BasicTorchRunner<B, P>::build_scheduler();
  }

 private:
  template <std::derived_from<RunnerConfig> C>
  BasicDeepSpeedRunner(const C& config, std::int64_t world_size, DeepSpeedNotes notes)
      : BasicTorchRunner<B, P>(with_deepspeed(config, world_size, &notes)), notes_(std::move(notes)) {}

  DeepSpeedNotes notes_;
};

/// The runner over the default `Batch`.
class DeepSpeedRunner : public BasicDeepSpeedRunner<Batch> {
 public:
  ~DeepSpeedRunner() override;

 protected:
  template <std::derived_from<RunnerConfig> C>
  explicit DeepSpeedRunner(const C& config) : BasicDeepSpeedRunner<Batch>(config) {}
  template <std::derived_from<RunnerConfig> C>
  DeepSpeedRunner(const C& config, std::int64_t world_size) : BasicDeepSpeedRunner<Batch>(config, world_size) {}
};

}  // namespace danling::inline v0
