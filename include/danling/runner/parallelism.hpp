// Parallelism of a run: identity and share of the data of each rank, and the communication of a step.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <danling/distributed/group.hpp>
#include <danling/distributed/process.hpp>
#include <danling/optim/optimizer.hpp>
#include <danling/runner/model.hpp>
#include <danling/runner/window.hpp>
#include <danling/state/state.hpp>

namespace danling::inline v0 {

/// Exchanged by all ranks once per update and between rounds. The loops act on the combined packet alone, so that all
/// ranks do the same. A flag is true when it is true on any rank.
struct StepPacket {
  double weight = 0.0;    ///< of the window: the sum over ranks whose gradients are summed
  std::int64_t unit = 0;  ///< of the weights of those gradients; 0 where none counts. Combined: the one of all ranks
  /// The place of the ranks that have batches: number of the model whose window closes (-1: none), micro-batches of the
  /// run and of the pass. Combined: those of the furthest rank.
  std::int64_t learner = -1, micro_step = 0, iteration = 0;
  /// Combined: the first rank that has batches.
  std::int64_t source = -1;
  std::int64_t signal = 0;  ///< of the stop that was requested; combined: the greatest
  bool stop = false;        ///< a stop was requested, or a time limit is reached
  bool end = false;         ///< a callback ends training
  bool evaluate = false;    ///< a callback requests an evaluation
  bool save = false;        ///< a callback requests a save
  /// This rank has ended its pass over the data: it joins the updates of others with weight 0. Combined: some rank has.
  bool exhausted = false;
  bool all_ended = false;  ///< combined: every rank has ended its pass
  bool logs = false;       ///< the others are at a line of the log, not at an update
  bool timed_out = false;  ///< a time limit is reached
  bool regroup = false;    ///< processes wait to join: see ft
  bool missing = false;    ///< a parameter has no gradient in this window
  bool late = false;       ///< a gradient came after the sum of its bucket had begun
  // In a second exchange after the gradients are summed, where a policy judges losses or gradients.
  bool nonfinite = false;    ///< a gradient or loss is not finite
  double loss = 0.0;         ///< sum over the window's samples, and over ranks
  double loss_weight = 0.0;  ///< their number
};

/// Options of a backward pass.
struct BackwardOptions {
  /// Tensors that get gradients: the parameters of one of several models. Empty: all leaves.
  std::vector<at::Tensor> inputs = {};
  /// Keeps the graph for the backward pass of another loss.
  bool retain_graph = false;
};

/// Rank and size of a process along one axis.
struct AxisPlace {
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::int64_t parts = 1;  ///< neighbouring places that the process holds, from `rank` on
};

/// Where a rank's part of a tensor lies in the whole one.
struct TensorPlace {
  std::vector<std::int64_t> sizes;    ///< of the whole
  std::vector<std::int64_t> offsets;  ///< of the part's first value
  std::vector<std::int64_t> own;      ///< sizes of the part; it may have no values
};

class Parallelism;
namespace detail {
/// Sizes of the axes above 1, by name.
State axes_of(const Parallelism& parallelism);
}  // namespace detail

/// One process, without communication; the base of data parallel and sharded training. The runner owns one object,
/// which `stack` of the config selects. Functions of a step are called on every rank, in the order of their
/// declaration.
class Parallelism {
 public:
  explicit Parallelism(ProcessIdentity identity = {}) : identity_(std::move(identity)) {}
  /// The processes of a group that the program has joined.
  explicit Parallelism(Group group);
  Parallelism(const Parallelism&) = delete;
  Parallelism& operator=(const Parallelism&) = delete;
  virtual ~Parallelism();

  /// Name in messages: "single".
  virtual std::string_view name() const { return "single"; }

  // ---- identity -----------------------------------------------------------------------------------------------------

  /// The one source of rank and size for seeds, loaders, logs and metrics.
  const ProcessIdentity& identity() const { return identity_; }
  /// All processes of the run, over which meters and metrics are combined.
  const Group& group() const { return group_; }
  /// Place along an axis: `replicate`, `shard`, `context`, `pipeline`, `tensor`, `expert`, `expert_tensor`. An unused
  /// axis has size 1. @throws ConfigError that lists the axes for another name.
  virtual AxisPlace axis(std::string_view name) const;
  /// Part of each global batch that this rank reads, or parts. Ranks that compute the same samples together (tensor,
  /// pipeline) have the same place.
  virtual AxisPlace data_share() const { return {identity_.rank, identity_.world_size}; }
  /// Whether losses, weights and metrics of this rank enter those of the run. False where another rank computes the
  /// same samples and reports them.
  virtual bool reports() const { return true; }
  /// How many ranks report.
  virtual std::int64_t reporting_ranks() const { return identity_.world_size; }
  /// Whether all ranks must have equally many training batches: last ones are then padded with samples of the
  /// beginning.
  virtual bool needs_equal_batches() const { return !sums_gradients(); }
  /// Seed of this rank's generators from init_distributed on.
  virtual std::uint64_t seed(std::uint64_t run_seed) const {
    return run_seed + static_cast<std::uint64_t>(identity_.rank);
  }
  /// The rank of a checkpoint whose generators this one goes on with, so that ranks which must draw the same numbers do
  /// on another grid too; nothing: it begins with its seed. @param axes  sizes by name, of `ranks` processes
  virtual std::optional<std::int64_t> generators_from(const State& axes, std::int64_t ranks) const;

  // ---- model --------------------------------------------------------------------------------------------------------

  /// Moves the model to the device, and shards or broadcasts it there. Called once per model, before the optimizer is
  /// built; with `ft` again, on a new object, for each generation of processes. Do not wrap the module: users access it
  /// through the handle.
  virtual void prepare(ModelHandle& model, at::Device device);
  /// Parameters that the optimizer of a model updates, by their names: those of the model, or rows of them.
  virtual NamedTensors trained_parameters(const ModelHandle& model) const { return model.named_parameters(); }
  /// Called when training begins, after a checkpoint has been restored, with the optimizers of all models.
  virtual void prepare_optimizers(const std::vector<optim::Optimizer*>& optimizers);

  // ---- checkpoints --------------------------------------------------------------------------------------------------

  /// While the result lives, parameters of models have their values, and optimizer_state() returns whole ones on the
  /// main process. Called by all ranks, between steps. Null: they always have.
  /// @param writes  whether what is written to the parameters is kept
  virtual std::shared_ptr<void> expose(const std::vector<const optim::Optimizer*>& optimizers, bool writes);
  /// State of an optimizer for a checkpoint, in the layout of one process.
  virtual State optimizer_state(const optim::Optimizer& optimizer) const { return optimizer.state_dict(); }
  virtual void load_optimizer_state(optim::Optimizer& optimizer, const State& state) {
    optimizer.load_state_dict(state);
  }
  /// The part of a model's tensor that trained_parameters() has here, for checkpoints of shards; nothing: all of it.
  virtual std::optional<TensorPlace> place_of(const at::Tensor& parameter) const;
  /// The values of trained_parameters() were changed, between steps. Called by all ranks.
  virtual void parameters_changed() {}
  /// Whether every rank can show whole models and states, as checkpoints of files need: expose().
  virtual bool can_expose() const { return true; }
  /// Whether trained_parameters() are parts of the model's, in memory that others read.
  virtual bool splits_parameters() const { return false; }
  /// Whether models have the values of all their parameters between steps, also where trained_parameters() are parts:
  /// then once parameters_changed() was called after an update.
  virtual bool has_whole_parameters() const { return true; }
  /// A tensor with a value for each of a trained parameter's, of the whole parameter. Called by all ranks.
  virtual at::Tensor whole_of(const at::Tensor& /*trained*/, const at::Tensor& part) const { return part; }
  /// The part of this rank.
  virtual at::Tensor part_of(const at::Tensor& /*trained*/, const at::Tensor& whole) const { return whole; }
  /// State of this rank that a checkpoint keeps; null: none. Called by all ranks, between steps.
  virtual State state_dict() const;
  /// Restores a state of this rank, or that of rank 0 where the number of ranks has changed; null: begins anew. Called
  /// before prepare_optimizers, and for a roll-back between steps.
  /// @return what does not fit and is left out, for the log; empty: nothing
  virtual std::string load_state_dict(const State& state);

  // ---- a step -------------------------------------------------------------------------------------------------------

  /// Before the forward pass of a micro-batch. Gradients are communicated only where `place.closes` (else no-sync);
  /// with several models it is true where all windows close.
  virtual void begin_step(const WindowPlace& place);
  /// Where losses are scaled: before each backward pass and before reduce_gradients. `scale` is a scalar on the device,
  /// and the same for a whole window.
  virtual void set_loss_scale(const optim::Optimizer& optimizer, const at::Tensor& scale);
  /// Where a recorded step is replayed, in place of backward(): what that does before the pass.
  virtual void begin_backward(const WindowPlace& place);
  /// The backward pass; `seed` is the gradient of the loss. May begin to communicate gradients where `place.closes`.
  virtual void backward(const at::Tensor& loss, const at::Tensor& seed, const WindowPlace& place,
                        const BackwardOptions& options);
  /// Combines the packets of all ranks. Called after the last backward pass of a window, between rounds, and after the
  /// end of a pass that others continue. An override calls the base.
  /// @throws DistributedError with the words of a rank whose step threw.
  virtual StepPacket agree(const StepPacket& mine);
  /// Whether reduce_gradients sums over ranks; agree() then sums the weights of their windows too.
  virtual bool sums_gradients() const { return false; }
  /// Whether models have the same parameters on all ranks, while expose() shows them.
  virtual bool has_same_weights() const { return sums_gradients(); }
  /// After agree(): sums the gradients over ranks, or waits for the sums that backward() began. A window may close
  /// without a backward pass with `place.closes`: at the end of a run, or with windows of several models. The division
  /// by the window's weights comes later. On a rank without a valid target gradients may be undefined.
  virtual void reduce_gradients(optim::Optimizer& optimizer);
  /// Whether a micro-batch comes as several shards, each computed alone by generators of its own, in as many calls of
  /// train_step.
  virtual bool computes_shards() const { return false; }
  /// After the backward passes of a shard, before agree(): takes its gradients.
  virtual void end_shard(optim::Optimizer& optimizer);
  /// Whether backward() sums gradients before reduce_gradients() where `place.closes`. The gradient noise scale then
  /// needs windows of two or more micro-batches.
  virtual bool sums_in_backward() const { return false; }
  /// 1 when any gradient of any rank is not finite, else 0: a float32 scalar on the device. Called where the norm does
  /// not show it. No device wait.
  virtual at::Tensor nonfinite_flag(const std::vector<at::Tensor>& params);
  /// Clips as optim/clip.hpp does. No device wait.
  virtual void clip_grad_value(const std::vector<at::Tensor>& params, double max_value, double divisor);
  /// Stores the factor in `scale`, for the optimizer's pass, and sets `scale.found_inf` for a non-finite norm.
  /// @param max_norm  infinite where only the norm is read
  /// @return the norm of the gradients divided by `scale`, over all shards: the same on every rank. No device wait.
  virtual at::Tensor clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm, optim::GradScale& scale);
  virtual void zero_grad(optim::Optimizer& optimizer);
  /// Whether a loss of weight 0 is differentiated too: layers that communicate in their backward pass.
  virtual bool needs_every_backward() const { return false; }
  /// Why its steps are not to be recorded (compile.enable); empty: they are, and what backward() does besides the pass
  /// are host calls of tape/observer.hpp. By default only those of one process are. Called before each step.
  virtual std::string why_not_recorded() const;
  /// Another number when steps that were recorded cannot be replayed any longer. Called before each step.
  virtual std::int64_t recording_version() const { return 0; }
  /// After all updates of a micro-batch, or before an average of whole values. Called on every rank that took part.
  virtual void end_updates() {}
  /// After the micro-batch, also when it threw: undoes begin_step.
  virtual void end_step(const WindowPlace& place) noexcept;
  /// Forgets the gradients of a window that is not closed, after an error or before a roll-back.
  virtual void drop_gradients(optim::Optimizer& optimizer);

  // ---- evaluation and inference -------------------------------------------------------------------------------------

  /// Before each batch of an evaluation or inference, on every rank; `mine`: whether this rank has one. Ranks that
  /// compute together stay until none has: they take part in the others' forward passes here.
  /// @return whether this rank computes a batch now, after which it calls end_forward()
  virtual bool begin_forward(bool mine) { return mine; }
  virtual void end_forward() {}
  /// In place of end_forward() when the pass threw.
  virtual void drop_forward() noexcept {}

  /// After an error of this rank that ends its training: ends the waits of the others, who throw its words.
  virtual void abort(std::string_view words);
  /// Timeout of waits for other ranks from now on. Called on every rank.
  virtual void set_timeout(std::chrono::milliseconds timeout);
  /// Seconds that this rank has waited in agree() and reduce_gradients(): communication, and ranks that come later.
  double waited_seconds() const { return waited_seconds_; }

 protected:
  /// Called by agree() on a rank that has ended its pass, for each exchange of the others inside a step. `shares` has
  /// one entry per rank; those of ranks without a batch are empty.
  virtual void follow(const std::vector<std::string>& shares);

  /// Counts a wait for other ranks, for its lifetime.
  class Wait {
   public:
    explicit Wait(Parallelism& owner) : owner_(owner), begin_(std::chrono::steady_clock::now()) {}
    ~Wait() {
      owner_.waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    Parallelism& owner_;
    std::chrono::steady_clock::time_point begin_;
  };

 private:
  double waited_seconds_ = 0.0;
  ProcessIdentity identity_;
  Group group_;
};

}  // namespace danling::inline v0
