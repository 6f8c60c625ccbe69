// Parallelism of a run: identity and data share of each rank, and the communication of a step.
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

/// All ranks exchange packets once per update and between rounds. The loops decide only by the combined packet, so that
/// all ranks do the same. A combined flag is true if it is true on any rank.
struct StepPacket {
  double weight = 0.0;    ///< of the window; combined: sum over the ranks whose gradients are summed
  std::int64_t unit = 0;  ///< of these weights; 0 if no gradient counts. Combined: the common unit of all ranks
  /// Position of a rank that has batches: number of the model whose window closes (-1: none), micro-batches of the run
  /// and of the pass. Combined: the position of the furthest rank.
  std::int64_t learner = -1, micro_step = 0, iteration = 0;
  /// Combined: the first rank that has batches.
  std::int64_t source = -1;
  std::int64_t signal = 0;  ///< of the requested stop; combined: the greatest
  bool stop = false;        ///< a stop was requested, or a time limit is reached
  bool end = false;         ///< a callback ends training
  bool evaluate = false;    ///< a callback requests an evaluation
  bool save = false;        ///< a callback requests a save
  /// This rank has ended its pass over the data; it joins the others' updates with weight 0. Combined: any rank has.
  bool exhausted = false;
  bool all_ended = false;  ///< combined: every rank has ended its pass
  bool logs = false;       ///< the other ranks write a log line, instead of updating
  bool timed_out = false;  ///< a time limit is reached
  bool regroup = false;    ///< processes wait to join; see ft
  bool missing = false;    ///< a parameter has no gradient in this window
  bool late = false;       ///< a gradient arrived after the sum of its bucket had begun
  // Of a second exchange after the gradients are summed, if a policy checks losses or gradients.
  bool nonfinite = false;    ///< a gradient or loss is not finite
  double loss = 0.0;         ///< sum over the window's samples; combined: over all ranks
  double loss_weight = 0.0;  ///< number of these samples
};

/// Options of a backward pass.
struct BackwardOptions {
  /// Tensors that receive gradients: the parameters of one of several models. Empty: all leaves.
  std::vector<at::Tensor> inputs = {};
  /// Keeps the graph for the backward pass of another loss.
  bool retain_graph = false;
};

/// Rank and size of a process along one axis.
struct AxisPlace {
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::int64_t num_shares = 1;  ///< number of neighbouring places that the process holds, from `rank` on
};

/// Position and sizes of a rank's part of a whole parameter: what a Parallelism knows without the tensor. A ShardPlace
/// lacks the sizes, which the saved tensor has.
struct TensorShard {
  std::vector<std::int64_t> sizes;    ///< of the whole tensor
  std::vector<std::int64_t> offsets;  ///< of the first value of the part
  std::vector<std::int64_t> own;      ///< sizes of the part, which may be empty
};

class Parallelism;
namespace detail {
/// Sizes of the axes above 1, by name.
State axes_of(const Parallelism& parallelism);
}  // namespace detail

/// One process without communication; the base class of data parallel and sharded training. The runner owns one object,
/// which `stack` of the config selects. Every rank calls the functions of a step. Their order for a micro-batch:
/// begin_step; for each backward pass set_loss_scale and backward; end_shard; where a window closes exchange_packets,
/// set_loss_scale, reduce_gradients, the norm and clipping functions, zero_grad; then end_step and end_updates.
class Parallelism {
 public:
  explicit Parallelism(ProcessIdentity identity = {}) : identity_(std::move(identity)) {}
  /// For processes that the program has joined in `group`.
  explicit Parallelism(Group group);
  Parallelism(const Parallelism&) = delete;
  Parallelism& operator=(const Parallelism&) = delete;
  virtual ~Parallelism();

  /// Name in messages: "single".
  virtual std::string_view name() const { return "single"; }

  // ---- identity -----------------------------------------------------------------------------------------------------

  /// The only source of rank and size for seeds, loaders, logs and metrics.
  const ProcessIdentity& identity() const { return identity_; }
  /// All processes of the run; meters and metrics are combined over them.
  const Group& group() const { return group_; }
  /// Place along an axis: `replicate`, `shard`, `context`, `pipeline`, `tensor`, `expert`, `expert_tensor`. An unused
  /// axis has size 1. @throws ConfigError that lists the axes, for another name
  virtual AxisPlace axis(std::string_view name) const;
  /// The part, or parts, of each global batch that this rank reads. Ranks that compute the same samples together
  /// (tensor, pipeline) have the same place.
  virtual AxisPlace data_share() const { return {identity_.rank, identity_.world_size}; }
  /// True when losses, weights and metrics of this rank count in those of the run. False when another rank computes and
  /// reports the same samples.
  virtual bool reports_metrics() const { return true; }
  /// Number of ranks that report.
  virtual std::int64_t num_reporting_ranks() const { return identity_.world_size; }
  /// True when all ranks must have the same number of training batches: the last batches are then padded with samples
  /// from the beginning.
  virtual bool needs_equal_batches() const { return !sums_gradients(); }
  /// Seed of this rank's generators from init_distributed on.
  virtual std::uint64_t seed(std::uint64_t run_seed) const {
    return run_seed + static_cast<std::uint64_t>(identity_.rank);
  }
  /// The rank in a checkpoint whose generator states this rank loads, so that ranks which must draw the same numbers
  /// also do so on another grid. Empty: start from seed(). @param axes  sizes by name, of `ranks` processes
  virtual std::optional<std::int64_t> generators_from(const State& axes, std::int64_t ranks) const;

  // ---- model --------------------------------------------------------------------------------------------------------

  /// Moves the model to the device, and shards or broadcasts it there. Called once per model, before the optimizer is
  /// built; with `ft` again, on a new object, for each generation of processes. Do not wrap the module: users access it
  /// through the handle.
  virtual void prepare(ModelHandle& model, at::Device device);
  /// Parameters that the optimizer of a model updates, by name: the model's, or this rank's rows of them.
  virtual NamedTensors trained_parameters(const ModelHandle& model) const { return model.named_parameters(); }
  /// Called when training begins, after a checkpoint is restored, with the optimizers of all models.
  virtual void prepare_optimizers(const std::vector<optim::Optimizer*>& optimizers);

  // ---- checkpoints --------------------------------------------------------------------------------------------------

  /// While the returned object lives, models hold the values of all their parameters, and optimizer_state() returns
  /// full states on the main process. All ranks call it, between steps. Returns null if nothing is sharded.
  /// @param writes  keep changes to the parameters
  virtual std::shared_ptr<void> gather_full_state(const std::vector<const optim::Optimizer*>& optimizers, bool writes);
  /// State of an optimizer for a checkpoint, in the layout of one process.
  virtual State optimizer_state(const optim::Optimizer& optimizer) const { return optimizer.state_dict(); }
  /// Loads such a state. @throws StateError when it does not match the optimizer
  virtual void load_optimizer_state(optim::Optimizer& optimizer, const State& state) {
    optimizer.load_state_dict(state);
  }
  /// For sharded checkpoints: the part of a model's tensor that trained_parameters() has on this rank. Empty: the whole
  /// tensor.
  virtual std::optional<TensorShard> shard_of(const at::Tensor& parameter) const;
  /// Called by all ranks, between steps, after values of trained_parameters() were changed.
  virtual void parameters_changed() {}
  /// True when every rank can gather whole models and states, which checkpoints in files need.
  virtual bool can_gather_full_state() const { return true; }
  /// True when trained_parameters() are parts of the model's parameters, in memory that others read.
  virtual bool splits_parameters() const { return false; }
  /// True when models hold the values of all their parameters between steps. If trained_parameters() are parts, they do
  /// so after parameters_changed() is called.
  virtual bool has_whole_parameters() const { return true; }
  /// Gathers a tensor that has one value per value of a trained parameter to the size of the whole parameter. Called by
  /// all ranks.
  virtual at::Tensor full_tensor(const at::Tensor& /*trained*/, const at::Tensor& part) const { return part; }
  /// This rank's part of such a tensor.
  virtual at::Tensor local_tensor(const at::Tensor& /*trained*/, const at::Tensor& whole) const { return whole; }
  /// State of this rank for a checkpoint; null: none. Called by all ranks, between steps.
  virtual State state_dict() const;
  /// Restores the state of this rank, or that of rank 0 if the number of ranks has changed; null: resets the state.
  /// Called before prepare_optimizers, and between steps for a roll-back.
  /// @return a log text about the entries that do not fit and are skipped; empty if all fit
  virtual std::string load_state_dict(const State& state);

  // ---- a step -------------------------------------------------------------------------------------------------------

  /// Called before the forward pass of a micro-batch. Gradients are communicated only if `place.closes`; with several
  /// models it is true where all windows close.
  virtual void begin_step(const WindowPlace& place);
  /// With loss scaling, called before each backward pass and before reduce_gradients. `scale` is a scalar on the
  /// device, the same for a whole window.
  virtual void set_loss_scale(const optim::Optimizer& optimizer, const at::Tensor& scale);
  /// Called instead of backward() when a recorded step is replayed: does what backward() does before the pass.
  virtual void begin_backward(const WindowPlace& place);
  /// The backward pass; `seed` is the gradient of the loss. May start communicating gradients if `place.closes`.
  virtual void backward(const at::Tensor& loss, const at::Tensor& seed, const WindowPlace& place,
                        const BackwardOptions& options);
  /// Combines the packets of all ranks. Called after the last backward pass of a window, between rounds, and after the
  /// end of a pass that other ranks continue. An override calls the base.
  /// @throws DistributedError with the message of a rank whose step threw
  virtual StepPacket exchange_packets(const StepPacket& mine);
  /// True when reduce_gradients sums over ranks; exchange_packets() then sums the weights of their windows too.
  virtual bool sums_gradients() const { return false; }
  /// True when models have the same parameters on all ranks, at least while gather_full_state() holds them.
  virtual bool has_same_weights() const { return sums_gradients(); }
  /// Called after exchange_packets(): sums the gradients over ranks, or waits for the sums that backward() started. A
  /// window may close without a backward pass with `place.closes`: at the end of a run, or with windows of several
  /// models. The division by the window's weights comes later. On a rank without valid targets, gradients may be
  /// undefined.
  virtual void reduce_gradients(optim::Optimizer& optimizer);
  /// True when a micro-batch consists of several shards. Each is computed in a separate call of train_step, with
  /// separate generators.
  virtual bool computes_shards() const { return false; }
  /// Called after the backward passes of a shard, before exchange_packets(): takes its gradients.
  virtual void end_shard(optim::Optimizer& optimizer);
  /// True when backward() sums gradients before reduce_gradients() if `place.closes`. The gradient noise scale then
  /// needs windows of two or more micro-batches.
  virtual bool sums_in_backward() const { return false; }
  /// Returns a float32 scalar on the device: 1 if a gradient on any rank is not finite, else 0. Called where no norm is
  /// computed. Does not wait for the device, except where ranks have different parts of a model.
  virtual at::Tensor nonfinite_flag(const std::vector<at::Tensor>& params);
  /// Clips as optim/clip.hpp does. Does not wait for the device.
  virtual void clip_grad_value(const std::vector<at::Tensor>& params, double max_value, double divisor);
  /// Stores the clipping factor in `scale`, for the optimizer's pass, and sets `scale.found_inf` for a non-finite norm.
  /// Does not wait for the device, except where ranks have different parts of a model.
  /// @param max_norm  infinite if only the norm is needed
  /// @return the norm of the gradients divided by `scale`, over all shards: the same on every rank
  virtual at::Tensor clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm, optim::GradScale& scale);
  /// Called after each update, or instead of a skipped one.
  virtual void zero_grad(optim::Optimizer& optimizer);
  /// True when a loss of weight 0 needs a backward pass too, since layers communicate in it.
  virtual bool needs_every_backward() const { return false; }
  /// The reason why steps cannot be recorded (compile.enable). Empty if they can: everything that backward() does
  /// besides the pass is then a host call of tape/observer.hpp. By default only steps of one process can. Called before
  /// each step.
  virtual std::string unrecordable_reason() const;
  /// Changes when recorded steps can no longer be replayed. Called before each step.
  virtual std::int64_t recording_version() const { return 0; }
  /// Called after all updates of a micro-batch, or before an average of whole values, on every rank that took part.
  virtual void end_updates() {}
  /// Called after the micro-batch, also after an exception: reverts begin_step.
  virtual void end_step(const WindowPlace& place) noexcept;
  /// Drops the gradients of an open window, after an error or before a roll-back.
  virtual void drop_gradients(optim::Optimizer& optimizer);

  // ---- evaluation and inference -------------------------------------------------------------------------------------

  /// Called before each batch of an evaluation or inference, on every rank; `mine`: this rank has a batch. Ranks that
  /// compute together stay until none has one: they take part in the others' forward passes here.
  /// @return true if this rank now computes a batch; it then calls end_forward()
  virtual bool begin_forward(bool mine) { return mine; }
  /// Called after a batch for which begin_forward() returned true.
  virtual void end_forward() {}
  /// Called instead of end_forward() when the pass threw.
  virtual void drop_forward() noexcept {}

  /// Called after an error of this rank that ends its training: ends the waits of the other ranks, which throw `words`.
  virtual void abort(std::string_view words);
  /// Sets the timeout of further waits for other ranks. Called on every rank.
  virtual void set_timeout(std::chrono::milliseconds timeout);
  /// Seconds that this rank has waited in exchange_packets() and reduce_gradients(), for communication and for slower
  /// ranks.
  double waited_seconds() const { return waited_seconds_; }

 protected:
  /// Called by exchange_packets() on a rank that has ended its pass, for each exchange of the others inside a step.
  /// `shares` has one entry per rank; it is empty for ranks without a batch.
  virtual void join_exchange(const std::vector<std::string>& shares);

  /// Adds its lifetime to waited_seconds().
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
