#include <runner/sharded_parallel.hpp>

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <danling/core/error.hpp>
#include <danling/optim/elementwise.hpp>
#include <danling/runner/parallel_parts.hpp>

#include <optim/params_of.hpp>
#include <runner/data_parallel_layers.hpp>
#include <runner/optimizer_numbers.hpp>
#include <runner/same_model.hpp>
#include <runner/virtual_ranks.hpp>

namespace danling::inline v0::detail {
namespace {

/// Calls `change(key, parameter, tensor)` for each tensor of an optimizer's state with one value per parameter value,
/// and replaces it by the result.
template <class Change>
void each_state_tensor(State& state, const std::vector<at::Tensor>& params, const Change& change) {
  State* entries = state.map().find("state");
  if (entries == nullptr || !entries->is_map()) {
    return;
  }
  State changed{State::Map()};
  for (const auto& entry : std::as_const(*entries).map()) {
    const at::Tensor& param = params.at(static_cast<std::size_t>(entry.key.integer()));
    State own{State::Map()};
    for (const auto& item : entry.value.map()) {
      own.map().set(item.key,
                    item.value.is_tensor() ? State(change(item.key.string(), param, item.value.tensor())) : item.value);
    }
    changed.map().set(entry.key, std::move(own));
  }
  *entries = std::move(changed);
}

ShardOptions shard_options(const FsdpConfig& config) {
  ShardOptions out;
  out.units = config.units;
  out.stage = static_cast<int>(config.stage);
  out.prefetch = config.prefetch;
  out.mixed_precision.param_dtype = shard_dtype(config.mp_policy.param_dtype);
  out.mixed_precision.reduce_dtype = shard_dtype(config.mp_policy.reduce_dtype);
  out.mixed_precision.cast_forward_inputs = config.mp_policy.cast_forward_inputs.value_or(true);
  out.offload = config.offload_policy.has_value();
  out.shared_memory = config.shared_memory;
  return out;
}

}  // namespace

at::ScalarType shard_dtype(const std::optional<std::string>& name) {
  return !name                ? at::ScalarType::Undefined
         : *name == "float32" ? at::kFloat
         : *name == "float64" ? at::kDouble
         : *name == "float16" ? at::kHalf
                              : at::kBFloat16;
}

/// Holds whole parameters and states for its lifetime.
struct ShardedParallel::Exposed {
  Exposed(ShardedParallel& parallelism, bool keeps_writes) : owner(parallelism), writes(keeps_writes) {}
  ~Exposed() { owner.states_.clear(); }
  ShardedParallel& owner;
  bool writes;
  std::vector<std::unique_ptr<ShardedModel::FullParameters>> models;
};

ParallelTopology grid_topology(std::int64_t world_size, std::int64_t rank, std::vector<ParallelAxis> axes) {
  std::vector<std::string> all;
  for (const ParallelAxis& axis : axes) {
    all.push_back(axis.name);
  }
  return {world_size,
          rank,
          std::move(axes),
          {{"data", {"replicate", "shard"}},
           {"batch", {"replicate", "shard"}},
           {"loss", {"replicate", "shard", "context"}},
           {"optimizer", std::move(all)},
           {"fsdp", {"replicate", "shard", "context"}},
           {"replicas", {"replicate", "context"}}},
          "grid (parallel.axes)"};
}

namespace {

ParallelTopology shards_of(const Group& group) {
  ParallelAxesConfig axes;
  axes.shard = group.size();
  return grid_topology(group.size(), group.rank(), axes.list());
}

}  // namespace

ShardedParallel::ShardedParallel(Group group, const FsdpConfig& fsdp)
    : ShardedParallel(group, shards_of(group), fsdp) {}

ShardedParallel::ShardedParallel(Group world, ParallelTopology topology, const FsdpConfig& fsdp,
                                 std::vector<std::string> tensor_plan, std::optional<std::int64_t> virtual_ranks)
    : Parallelism(std::move(world)),
      options_(fsdp),
      shards_(virtual_ranks ? shards_of_ranks(group().size(), *virtual_ranks) : std::vector<Subtree>()),
      tensor_plan_(std::move(tensor_plan)),
      context_(std::move(topology), group()) {
  const AxisPlace place = axis("pipeline");
  set_stages(place.rank == 0, place.rank == place.size - 1);
}

void ShardedParallel::set_stages(bool has_first, bool has_last) {
  has_first_stage_ = has_first;
  has_last_stage_ = has_last;
}

AxisPlace ShardedParallel::axis(std::string_view name) const {
  Parallelism::axis(name);
  return {context_.topology().axis_rank(name), context_.topology().axis_degree(name)};
}

AxisPlace ShardedParallel::data_share() const {
  if (computes_shards()) {
    const Subtree& own = shards_[static_cast<std::size_t>(context_.topology().domain_rank("data"))];
    return {.rank = own.begin, .size = shards_.back().end, .num_shares = own.size()};
  }
  return {context_.topology().domain_rank("data"), context_.topology().domain_degree("data")};
}

std::uint64_t ShardedParallel::seed(std::uint64_t run_seed) const {
  if (computes_shards()) {
    return run_seed;  // each shard has a seed
  }
  // Ranks that compute different samples, tokens or layers draw different numbers: with equal numbers, stages would
  // drop the same places in consecutive layers. Ranks that compute the same (tensor, expert) draw the same.
  const ParallelTopology& topology = context_.topology();
  const auto stage = static_cast<std::uint64_t>(topology.axis_rank("pipeline"));
  return run_seed + static_cast<std::uint64_t>(topology.domain_rank("fsdp")) +
         stage * static_cast<std::uint64_t>(topology.domain_degree("fsdp"));
}

// The first rank that drew the numbers of this rank's samples and stage.
std::optional<std::int64_t> ShardedParallel::generators_from(const State& axes, std::int64_t ranks) const {
  if (computes_shards()) {
    return Parallelism::generators_from(axes, ranks);
  }
  const ParallelTopology& own = context_.topology();
  ParallelAxesConfig saved;
  std::vector<ParallelAxis> all = saved.list();
  std::int64_t known = 1;
  for (ParallelAxis& axis : all) {
    const State* degree = axes.is_map() ? axes.find(axis.name) : nullptr;
    axis.degree = degree != nullptr ? degree->integer() : 1;
    known *= axis.degree;
  }
  if (known != ranks) {  // of data parallel training, which has no axes
    check<CheckpointError>(known == 1, "runner.load_checkpoint", "expected axes of ", ranks, " processes, got ", known);
    all.front().degree = ranks;
  }
  const ParallelTopology before = grid_topology(ranks, 0, std::move(all));
  const std::int64_t samples = own.domain_rank("fsdp"), stage = own.axis_rank("pipeline");
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (before.domain_rank("fsdp", rank) == samples && before.domain_rank("pipeline", rank) == stage) {
      return rank;
    }
  }
  return std::nullopt;
}

bool ShardedParallel::reports_metrics() const {
  const ParallelTopology& topology = context_.topology();
  const auto is_first = [&](std::string_view axis) { return topology.axis_rank(axis) == 0; };
  return has_last_stage_ && is_first("tensor") && is_first("expert") && is_first("expert_tensor");
}

bool ShardedParallel::needs_equal_batches() const {
  const ParallelTopology& topology = context_.topology();
  return topology.axis_degree("pipeline") > 1 && topology.axis_degree("shard") > 1;
}

bool ShardedParallel::has_same_weights() const {
  const ParallelTopology& topology = context_.topology();
  return topology.domain_degree("fsdp") == topology.world_size();
}

void ShardedParallel::prepare_whole(ModelHandle& model, at::Device device) {
  is_cut_by_runner_ = true;
  make_whole(model, device);
}

void ShardedParallel::make_whole(ModelHandle& model, at::Device device) {
  check<ConfigError>(model.module() != nullptr, "runner.materialize_model",
                     "expected a model that is a torch::nn module with stack: ", name(), ", got ",
                     model.is_script() ? "a TorchScript module" : "a function");
  refuse_synced_layers(model, concat("stack: ", name()),
                       "its statistics are not exchanged there yet; use stack: ddp, or BatchNorm");
  Parallelism::prepare(model, device);
  make_same(group(), model);
}

void ShardedParallel::prepare(ModelHandle& model, at::Device device) {
  if (!is_cut_by_runner_) {
    for (const std::string_view axis : {"pipeline", "context"}) {  // ParallelRunner cuts the batches along these
      check<ConfigError>(context_.topology().axis_degree(axis) == 1, "runner.materialize_model",
                         "expected a runner that derives from ParallelRunner with parallel.axes.", axis,
                         " above 1, got another");
    }
    make_whole(model, device);
    parallelize(model, context_, tensor_plan_);
  }
  // Ranks that gather together may have different numbers of micro-batches: units stay gathered for the step.
  const bool is_staged = context_.topology().axis_degree("pipeline") > 1;
  check<ConfigError>(!is_staged || !options_.reshard_after_forward.value_or(false), "runner.materialize_model",
                     "expected 'fsdp.reshard_after_forward: false', or none, with 'parallel.axes.pipeline', got true");
  check<ConfigError>(models_.empty() || !computes_shards(), "runner.materialize_model",
                     "expected one model with parallel.virtual_ranks, got several in `models`");
  check<ConfigError>(model.lora() == nullptr, "runner.materialize_model",
                     "expected no adapters ('lora') with stack: ", name(), ", got some; use stack: ddp");
  model.set_output_dtype(shard_dtype(options_.mp_policy.output_dtype));
  SharedBuffers buffers(model);
  ShardOptions options = shard_options(options_);
  options.reshard_after_forward = options_.reshard_after_forward.value_or(!is_staged);
  options.replicas = context_.group("replicas");
  options.virtual_ranks = computes_shards() ? shards_.back().end : 0;
  std::optional<ShardBuffers> of_shards;
  if (computes_shards()) {
    of_shards.emplace(
        model, group(),
        TreeSum::Options{.ranks = shards_, .shared_memory = options_.shared_memory, .timeout = group().timeout()});
  }
  auto sharded = std::make_unique<ShardedModel>(model.module(), context_.group("shard"), options);
  std::set<const c10::TensorImpl*> own;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const at::Tensor rows = ShardedModel::to_local(parameter);
    trained_[parameter.unsafeGetTensorImpl()] = rows;
    const c10::TensorImpl* const trained = rows.unsafeGetTensorImpl();
    slices_[trained] = parallel::slices_of(parameter);
    sizes_[trained] = parameter.sizes().vec();
    leaves_[trained] = ShardedModel::leaf(parameter);
    own.insert(trained);
  }
  models_.push_back({std::move(sharded), std::move(own), std::move(buffers), std::move(of_shards)});
}

// One rank counts a value that several have: the first along each axis that does not slice it.
bool ShardedParallel::owns(const at::Tensor& trained) const {
  const ParallelTopology& topology = context_.topology();
  const auto found = slices_.find(trained.unsafeGetTensorImpl());
  if (topology.domain_rank("replicas") != 0) {
    return false;
  }
  for (const std::string_view axis : {"tensor", "expert", "expert_tensor"}) {
    const bool sliced =
        found != slices_.end() && std::any_of(found->second.begin(), found->second.end(),
                                              [axis](const parallel::Slice& slice) { return slice.axis == axis; });
    if (!sliced && topology.axis_rank(axis) != 0) {
      return false;
    }
  }
  return true;
}

NamedTensors ShardedParallel::trained_parameters(const ModelHandle& model) const {
  NamedTensors out = model.named_parameters();
  for (auto& [name, parameter] : out) {
    // Also while whole parameters are exposed, which are then plain tensors.
    const auto found = trained_.find(parameter.unsafeGetTensorImpl());
    parameter = found != trained_.end() ? found->second : parameter;
  }
  return out;
}

void ShardedParallel::prepare_optimizers(const std::vector<optim::Optimizer*>& optimizers) {
  for (const optim::Optimizer* optimizer : optimizers) {
    check<ConfigError>(dynamic_cast<const optim::ElementwiseOptimizer*>(optimizer) != nullptr, "runner.build_optimizer",
                       "expected an optimizer that updates each value by itself with stack: fsdp (sgd, adam, adamw, "
                       "...), got ",
                       optimizer->name(), ", whose update depends on whole parameters");
    for (const at::Tensor& param : optim::detail::params_of(*optimizer)) {
      check<ConfigError>(ShardedModel::to_local(param).is_same(param), "runner.build_optimizer",
                         "expected an optimizer of rows with stack: fsdp, got ", optimizer->name(),
                         " of whole parameters; set optim.type in the config, or build it in an override of "
                         "build_optimizer() from iter_optimizer_named_parameters()");
    }
  }
}

// ---- checkpoints ----------------------------------------------------------------------------------------------------

std::shared_ptr<void> ShardedParallel::gather_full_state(const std::vector<const optim::Optimizer*>& optimizers,
                                                         bool writes) {
  if (auto already = exposed_.lock()) {
    check<StateError>(!writes || std::static_pointer_cast<Exposed>(already)->writes, "runner.gather_full_state",
                      "expected whole parameters that keep writes, got ones that are exposed for reading already");
    for (const optim::Optimizer* optimizer : optimizers) {
      if (!writes && !states_.contains(optimizer)) {  // the scope was opened only for parameters
        states_[optimizer] = gather_state(*optimizer);
      }
    }
    return already;
  }
  auto out = std::make_shared<Exposed>(*this, writes);
  for (const Sharded& sharded : models_) {
    out->models.push_back(std::make_unique<ShardedModel::FullParameters>(*sharded.model, writes));
  }
  for (const optim::Optimizer* optimizer : writes ? std::vector<const optim::Optimizer*>() : optimizers) {
    states_[optimizer] = gather_state(*optimizer);
  }
  exposed_ = out;
  return out;
}

State ShardedParallel::gather_state(const optim::Optimizer& optimizer) const {
  const at::NoGradGuard no_grad;
  State state = clone(optimizer.state_dict());
  each_state_tensor(state, optim::detail::params_of(optimizer),
                    [&](std::string_view, const at::Tensor& rows, const at::Tensor& tensor) {
                      return tensor.sizes() == rows.sizes() ? full_tensor(rows, tensor) : tensor;
                    });
  return state;
}

bool ShardedParallel::splits_parameters() const { return !context_.group("shard").alone(); }

at::Tensor ShardedParallel::full_tensor(const at::Tensor& trained, const at::Tensor& part) const {
  const auto found = sizes_.find(trained.unsafeGetTensorImpl());
  return found == sizes_.end() || !splits_parameters()
             ? part
             : at::cat(context_.group("shard").all_gather(part)).view(found->second);
}

at::Tensor ShardedParallel::local_tensor(const at::Tensor& trained, const at::Tensor& whole) const {
  const auto found = sizes_.find(trained.unsafeGetTensorImpl());
  if (found == sizes_.end() || !splits_parameters() || whole.sizes() != at::IntArrayRef(found->second)) {
    return whole;
  }
  const at::Tensor rows = whole.dim() == 0 ? whole.view({1}) : whole;
  const auto [begin, count] = models_.front().model->row_range(rows.size(0));
  return rows.narrow(0, begin, count).clone();
}

State ShardedParallel::optimizer_state(const optim::Optimizer& optimizer) const {
  const auto found = states_.find(&optimizer);
  return found != states_.end() ? found->second : optimizer.state_dict();
}

void ShardedParallel::load_optimizer_state(optim::Optimizer& optimizer, const State& state) {
  State own = clone(state);
  each_state_tensor(own, optim::detail::params_of(optimizer),
                    [&](std::string_view key, const at::Tensor& rows, const at::Tensor& tensor) {
                      return is_number_of_parameter(key) ? tensor : local_tensor(rows, tensor);
                    });
  optimizer.load_state_dict(own);
}

}  // namespace danling::inline v0::detail
