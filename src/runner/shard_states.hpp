// States of a run whose ranks hold shards of models and optimizers: by name, with the position of each shard in the
// whole.
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

/// For `checkpoint.backend: dcp`: nothing is gathered. An optimizer's state is keyed by parameter names, since the
/// ranks of a pipeline have different parameters.
class TorchRunnerBase::Internals::ShardStates {
 public:
  explicit ShardStates(const TorchRunnerBase& runner) : runner_(runner) {}

  /// True when models and optimizers of a sharding Parallelism are currently exposed.
  bool is_exposed() const { return !exposed_.expired(); }
  /// @param whole  the result of gather_full_state()
  void set_exposed(const std::shared_ptr<void>& whole) { exposed_ = whole; }

  /// Rows, slices and stages of this rank, and buffers.
  State of_model(const ModelHandle& handle) const;
  /// Loads a state of of_model(), or of a whole model. @throws CheckpointError for missing entries and other shapes
  void load_model(const ModelHandle& handle, const State& state) const;
  State of_optimizer(const ModelHandle& handle, const optim::Optimizer& optimizer) const;
  /// Loads a state of of_optimizer(), in this or another layout, or the state in a file, which numbers whole
  /// parameters.
  void load_optimizer(const ModelHandle& handle, optim::Optimizer& optimizer, const State& state) const;
  static bool is_named(const State& optimizer);
  /// Converts an optimizer's state in a file to the form of of_optimizer(): this rank's shards by name.
  State named_optimizer(const ModelHandle& handle, const State& file) const;

  /// A state with the positions of its tensors. Ranks other than the first keep only models and optimizers.
  ShardedState with_places(State state) const;
  /// The box that this rank holds of a tensor in a checkpoint.
  std::optional<ShardBox> box_of(const std::string& path, at::IntArrayRef sizes) const;

 private:
  struct Part {
    TensorShard place;
    std::vector<std::int64_t> own;  ///< sizes on this rank
  };
  /// Parameters of a model that are shards of a whole, by name.
  using Parts = std::map<std::string, Part, std::less<>>;
  struct Found {
    const Part* part = nullptr;
    bool is_known = true;  ///< a name in this rank's model, or a name outside models
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
