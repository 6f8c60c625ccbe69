// What differs between one process and many: identity, share of the data, and how a step communicates.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/distributed/group.hpp>
#include <danling/distributed/process.hpp>
#include <danling/optim/optimizer.hpp>
#include <danling/runner/model.hpp>
#include <danling/runner/window.hpp>

namespace danling::inline v0 {

/// Exchanged by all ranks once per update and between rounds. The loops decide by the result alone what to do next, so
/// that all ranks do the same. (Whether a gradient is finite is has_nonfinite()'s to say.)
struct StepPacket {
  double weight = 0.0;     ///< of the window: the sum over ranks whose gradients are added up
  bool stop = false;       ///< somebody was asked to stop
  bool end = false;        ///< a callback of somebody ends training
  bool evaluate = false;   ///< a callback of somebody asks for an evaluation
  bool save = false;       ///< a callback of somebody asks for a save
  bool exhausted = false;  ///< somebody has ended its pass over the data, and takes no part in reduce_gradients
  bool failed = false;     ///< a step of somebody threw
};

/// Messages in place of a packet, wherever others wait for a gathered one: of a rank whose step threw, and of one that
/// has ended its pass.
inline constexpr std::string_view failed_message = "failed";
inline constexpr std::string_view ended_message = "ended";

/// What a backward pass is to do besides.
struct BackwardOptions {
  /// Where gradients go: the parameters of one of several models. Empty: all leaves.
  std::vector<at::Tensor> inputs = {};
  /// Whether another loss will go back through the same graph.
  bool retain_graph = false;
};

/// A process among those along one axis.
struct AxisPlace {
  std::int64_t rank = 0;
  std::int64_t size = 1;
};

/// One process: nothing is communicated, and every function does what a plain loop does. The runner owns one object of
/// this kind, set by `set_parallelism()` in `init_distributed()`; data parallel, sharded and staged training derive
/// from it. Functions of a step are called on every rank, in the order in which they stand here.
class Parallelism {
 public:
  explicit Parallelism(ProcessIdentity identity = {}) : identity_(std::move(identity)) {}
  /// The processes of a group that the program has joined itself.
  explicit Parallelism(Group group);
  Parallelism(const Parallelism&) = delete;
  Parallelism& operator=(const Parallelism&) = delete;
  virtual ~Parallelism();

  /// In messages: "single".
  virtual std::string_view name() const { return "single"; }

  // ---- who
  // -----------------------------------------------------------------------------------------------------------

  /// The one source of rank and size for seeds, loaders, logs and metrics.
  const ProcessIdentity& identity() const { return identity_; }
  /// All processes of the run: what meters and metrics are combined over.
  const Group& group() const { return group_; }
  /// The place along an axis: `replicate`, `shard`, `context`, `pipeline`, `tensor`, `expert`. One that is not used has
  /// size 1. @throws ConfigError that lists the axes for another name.
  virtual AxisPlace axis(std::string_view name) const;
  /// Which part of each global batch is read here. Ranks that compute the same samples together (tensor, pipeline) have
  /// the same place.
  virtual AxisPlace data_share() const { return {identity_.rank, identity_.world_size}; }
  /// What the generators of this rank begin with. Called when: the runner is constructed, then again after restoring.
  virtual std::uint64_t seed(std::uint64_t run_seed) const {
    return run_seed + static_cast<std::uint64_t>(identity_.rank);
  }

  // ---- model
  // ---------------------------------------------------------------------------------------------------------

  /// Moves the model to the device, and there shards or broadcasts it. Called once per model, before the optimizer is
  /// built. Do not wrap the module: users reach it through the handle.
  virtual void prepare(ModelHandle& model, at::Device device);

  // ---- a step
  // --------------------------------------------------------------------------------------------------------

  /// Before the forward pass of a micro-batch: where gradients wait for the window's end (no-sync), `place.closes`
  /// says so; with several models, whether all windows close.
  virtual void begin_step(const WindowPlace& place);
  /// The backward pass, `seed` being the gradient of the loss. What communicates gradients does it here, or begins to,
  /// where `place.closes`.
  virtual void backward(const at::Tensor& loss, const at::Tensor& seed, const WindowPlace& place,
                        const BackwardOptions& options);
  /// When the window closes, after its last backward pass: one exchange over group() per update, and one between
  /// rounds. A rank whose step threw sends failed_message in its place.
  virtual StepPacket agree(const StepPacket& mine);
  /// Whether reduce_gradients adds up those of all ranks: agree() then adds up the weights of their windows too.
  virtual bool sums_gradients() const { return false; }
  /// Then: adds up the gradients of all ranks, or waits for what backward has begun; also of windows that close without
  /// a backward pass that was told so, as at the end of a run or where several models have windows of their own. They
  /// are divided by the sum of the window's weights later. A rank without a valid target may have undefined gradients
  /// where others have some.
  virtual void reduce_gradients(optim::Optimizer& optimizer);
  /// Whether any gradient of any rank is not finite. Waits for the device.
  virtual bool has_nonfinite(const std::vector<at::Tensor>& params);
  /// The clipping of optim/clip.hpp, the norm being that of all shards. No device wait.
  virtual void clip_grad_value(const std::vector<at::Tensor>& params, double max_value, double divisor);
  virtual at::Tensor clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm, double divisor);
  virtual void zero_grad(optim::Optimizer& optimizer);
  /// After the micro-batch, also when it threw: takes back what begin_step set.
  virtual void end_step(const WindowPlace& place) noexcept;

 private:
  ProcessIdentity identity_;
  Group group_;
};

}  // namespace danling::inline v0
