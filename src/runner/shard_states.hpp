// States of a run whose ranks have parts of models and optimizers: by names, with the place of each part in the whole.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <danling/checkpoint/sharded.hpp>
#include <danling/runner/parallelism.hpp>
#include <danling/runner/torch_runner_base.hpp>

namespace danling::inline v0 {

/// For `checkpoint.backend: dcp`: nothing is gathered. An optimizer's state is keyed by names of parameters, since the
/// ranks of a pipeline have different ones.
class TorchRunnerBase::ShardStates {
 public:
  explicit ShardStates(const TorchRunnerBase& runner) : runner_(runner) {}

  /// Whether models and optimizers are whole at the moment, of a Parallelism that has parts.
  bool is_exposed() const { return !exposed_.expired(); }
  /// @param whole  what expose_state() returned
  void set_exposed(const std::shared_ptr<void>& whole) { exposed_ = whole; }

  /// Rows, slices and stages of this rank, and buffers.
  State of_model(const ModelHandle& handle) const;
  /// Of these, or of a whole model. @throws CheckpointError for missing entries and other shapes
  void load_model(const ModelHandle& handle, const State& state) const;
  State of_optimizer(const ModelHandle& handle, const optim::Optimizer& optimizer) const;
  /// Of one that of_optimizer() returned, here or in another layout, or of a file, which numbers whole parameters.
  void load_optimizer(const ModelHandle& handle, optim::Optimizer& optimizer, const State& state) const;
  static bool is_named(const State& optimizer);
  /// The state of an optimizer in a file, as of_optimizer() would return it: this rank's parts by name.
  State named_optimizer(const ModelHandle& handle, const State& file) const;

  /// A state with the places of its tensors. Ranks other than the first keep models and optimizers alone.
  ShardedState with_places(State state) const;
  /// The box of this rank, of a tensor in a checkpoint.
  std::optional<ShardBox> box_of(const std::string& path, at::IntArrayRef sizes) const;

 private:
  struct Part {
    TensorPlace place;
    std::vector<std::int64_t> own;  ///< sizes on this rank
  };
  /// By name, of a model: parameters that are parts of a whole.
  using Parts = std::map<std::string, Part, std::less<>>;
  struct Found {
    const Part* part = nullptr;
    bool is_known = true;  ///< a name of this rank's model, or none of a model
  };
  const std::map<std::string, Parts>& parts() const;
  std::map<std::string, NamedTensors> names() const;
  Found find(std::string_view path) const;

  const TorchRunnerBase& runner_;
  std::weak_ptr<void> exposed_;
  mutable std::map<std::string, Parts> parts_;
  mutable std::map<std::string, std::map<std::string, bool, std::less<>>> known_;
  mutable bool is_listed_ = false;
};

}  // namespace danling::inline v0
