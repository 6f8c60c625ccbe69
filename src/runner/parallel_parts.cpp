#include <danling/runner/parallel_parts.hpp>

#include <algorithm>
#include <charconv>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <danling/core/error.hpp>
#include <danling/data/tensors.hpp>
#include <danling/parallel/context_parallel.hpp>
#include <danling/parallel/parallelizable.hpp>
#include <danling/parallel/pipeline_split.hpp>
#include <danling/parallel/tensor_plan.hpp>
#include <danling/runner/parallel_runner.hpp>

#include <runner/join_processes.hpp>
#include <runner/sharded_parallel.hpp>
#include <runner/stage_names.hpp>
#include <runner/stage_tree.hpp>

namespace danling::inline v0 {

ParallelRunner::~ParallelRunner() = default;

namespace detail {
namespace {

const ShardedParallel* grid_of(const Parallelism& parallelism) {
  return dynamic_cast<const ShardedParallel*>(&parallelism);
}

/// Axes above 1 along which the model itself must be sliced.
std::vector<std::string> model_axes(const ParallelTopology& topology) {
  std::vector<std::string> out;
  for (const std::string_view axis : {"tensor", "context", "expert", "expert_tensor"}) {
    if (topology.axis_degree(axis) > 1) {
      out.emplace_back(axis);
    }
  }
  return out;
}

}  // namespace

// ---- the grid -------------------------------------------------------------------------------------------------------

const ParallelContext& context_of(const Parallelism& parallelism) {
  static const ParallelContext alone(grid_topology(1, 0, ParallelAxesConfig().list()), Group());
  const ShardedParallel* const grid = grid_of(parallelism);
  check<StateError>(grid != nullptr || parallelism.identity().world_size == 1, "runner.parallel",
                    "expected a call after the processes have met on a grid, in a hook from init_distributed on, got ",
                    "one before, or stack ", quote(parallelism.name()));
  return grid != nullptr ? grid->context() : alone;
}

ParallelTopology topology_of(const RunnerConfig& config, std::int64_t world_size, std::int64_t rank) {
  ParallelAxesConfig axes = config.parallel.axes;
  if (!axes.any()) {
    (config.stack == "fsdp" ? axes.shard : axes.replicate) = world_size;
  }
  return grid_topology(world_size, rank, axes.list());
}

bool needs_grid(const RunnerConfig& config) {
  const FsdpConfig& fsdp = config.fsdp;
  return config.parallel.virtual_ranks || fsdp.mp_policy.param_dtype || fsdp.mp_policy.output_dtype ||
         fsdp.offload_policy;
}

std::unique_ptr<Parallelism> build_grid(const ProcessIdentity& identity, const RunnerConfig& config,
                                        ParallelTopology topology) {
  const auto virtual_ranks = config.parallel.virtual_ranks;
  if (!identity.distributed() && !needs_grid(config)) {
    return std::make_unique<Parallelism>(identity);
  }
  return std::make_unique<ShardedParallel>(join_processes(identity, config), std::move(topology), config.fsdp,
                                           config.parallel.tensor_plan, virtual_ranks);
}

namespace {

/// Parses "pattern=style" and its options: "qkv$=colwise:unit=96", "head=colwise:gather_output".
parallel::TensorParallelRule rule_in(const std::string& text) {
  static constexpr std::string_view operation = "runner.parallelize_model";
  const auto equals =
      text.rfind('=', std::min(text.rfind("=colwise"), std::min(text.rfind("=rowwise"), text.rfind("=sequence"))));
  check<ConfigError>(equals != std::string::npos && equals > 0, operation,
                     "expected pattern=style in 'parallel.tensor_plan' with a style of colwise, rowwise or sequence, "
                     "got ",
                     quote(text));
  parallel::TensorParallelRule rule;
  rule.pattern = text.substr(0, equals);
  std::vector<std::string> words;
  for (std::size_t begin = equals + 1; begin <= text.size();) {
    const auto end = std::min(text.find(':', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const std::string& style = words.front();
  rule.style = style == "colwise"   ? parallel::TensorStyle::colwise
               : style == "rowwise" ? parallel::TensorStyle::rowwise
                                    : parallel::TensorStyle::sequence;
  check<ConfigError>(style == "colwise" || style == "rowwise" || style == "sequence", operation,
                     "expected a style of colwise, rowwise or sequence in 'parallel.tensor_plan', got ", quote(style));
  for (std::size_t at = 1; at < words.size(); ++at) {
    const std::string& word = words[at];
    std::int64_t unit = 0;
    const char* const end = word.data() + word.size();
    const bool is_unit = word.starts_with("unit=") &&
                         std::from_chars(word.data() + 5, end, unit) == std::from_chars_result{end, {}} && unit > 0;
    check<ConfigError>(is_unit || word == "gather_output" || word == "whole_input" || word == "sequence_parallel",
                       operation,
                       "expected gather_output, whole_input, sequence_parallel or unit=<number> behind a style in "
                       "'parallel.tensor_plan', got ",
                       quote(word));
    rule.unit = is_unit ? unit : rule.unit;
    rule.gather_output = rule.gather_output || word == "gather_output";
    rule.input_is_parallel = rule.input_is_parallel && word != "whole_input";
    rule.sequence_parallel = rule.sequence_parallel || word == "sequence_parallel";
  }
  return rule;
}

}  // namespace

void parallelize(ModelHandle& model, const ParallelContext& context, const std::vector<std::string>& tensor_plan) {
  parallel::TensorParallelPlan plan;
  for (const std::string& text : tensor_plan) {
    plan.push_back(rule_in(text));
  }
  if (auto* own = dynamic_cast<parallel::Parallelizable*>(model.module().get())) {
    own->parallelize(context);  // it may use other groups than the plan
    parallel::apply_plan(*model.module(), context, plan);
    return;
  }
  if (!plan.empty()) {
    parallel::parallelize_module(*model.module(), context, plan);
    return;
  }
  const auto axes = model_axes(context.topology());
  check<ConfigError>(axes.empty(), "runner.parallelize_model", "expected a model that is cut along the axes ",
                     join(axes), ", got ", c10::demangle(typeid(*model.module()).name()),
                     ", which is not a danling::parallel::Parallelizable; implement parallelize(context) there, "
                     "override parallelize_model(), or set parallel.tensor_plan");
}

void parallelize(torch::nn::Module* criterion, const ParallelContext& context) {
  if (auto* own = dynamic_cast<parallel::Parallelizable*>(criterion)) {
    own->parallelize(context);
  }
}

bool reads_data(const Parallelism& parallelism) {
  const ShardedParallel* const grid = grid_of(parallelism);
  return grid == nullptr || grid->reads_data();
}

bool cuts_sequences(const Parallelism& parallelism) { return parallelism.axis("context").size > 1; }

void cut_sequences(data::Batch& batch, const Group& context) {
  const auto part = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.dim() > 1 ? parallel::context_part(tensor, 1, context) : tensor;
  };
  batch.input = part(batch.input);
  batch.target = part(batch.target);
  batch.loss_normalizer.reset();
  batch.num_tokens.reset();
}

void fail_sequences() {
  fail<ConfigError>("runner.cut_sequences",
                    "expected a dl::Batch with parallel.axes.context above 1, got a batch of the program's; override "
                    "cut_sequences(batch)");
}

// ---- stages ---------------------------------------------------------------------------------------------------------

std::int64_t stages_of(const ParallelConfig& config, const ParallelTopology& topology) {
  static constexpr std::string_view where = "runner.pipeline_stage_indices";
  const std::int64_t ranks = topology.axis_degree("pipeline");
  const auto& names = config.module_fqns_per_model_part;
  const std::int64_t stages = names ? std::ssize(*names) : ranks;
  check<ConfigError>(stages >= ranks, where, "expected at least as many stages in ",
                     "'parallel.module_fqns_per_model_part' as 'parallel.axes.pipeline' has ranks (", ranks, "), got ",
                     stages);
  check<ConfigError>(stages % ranks == 0, where, "expected a number of stages that ", ranks,
                     " ranks of 'parallel.axes.pipeline' divide, got ", stages, " in ",
                     "'parallel.module_fqns_per_model_part'");
  return stages;
}

std::vector<std::int64_t> stage_indices(const ParallelConfig& config, const ParallelTopology& topology) {
  const std::int64_t ranks = topology.axis_degree("pipeline");
  const std::int64_t stages = stages_of(config, topology);
  const auto rank_of_stage = parallel::pipeline_rank_of_stage(config.pipeline_schedule, ranks, stages / ranks);
  std::vector<std::int64_t> out;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    if (rank_of_stage.at(static_cast<std::size_t>(stage)) == topology.axis_rank("pipeline")) {
      out.push_back(stage);
    }
  }
  return out;
}

void place_stages(Parallelism& parallelism, const ParallelConfig& config,
                  const std::function<std::vector<std::int64_t>()>& indices) {
  auto* const grid = dynamic_cast<ShardedParallel*>(&parallelism);
  if (grid == nullptr || parallelism.axis("pipeline").size == 1) {
    return;
  }
  const std::vector<std::int64_t> own = indices();
  const std::int64_t last = stages_of(config, grid->context().topology()) - 1;
  const auto has = [&](std::int64_t stage) { return std::find(own.begin(), own.end(), stage) != own.end(); };
  grid->set_stages(has(0), has(last));
}

std::unique_ptr<parallel::PipelineSchedule> build_schedule(const std::vector<StagePart>& parts,
                                                           const ParallelConfig& config, std::int64_t micro_batches,
                                                           const ParallelContext& context,
                                                           parallel::PipelineOptions options) {
  parallel::PipelinePlan plan = parallel::pipeline_schedule(
      config.pipeline_schedule, context.topology().axis_degree("pipeline"), std::ssize(parts), micro_batches);
  std::vector<parallel::PipelineStage> stages;
  for (const StagePart& part : parts) {
    stages.push_back({.index = part.stage, .forward = part.forward});
  }
  return std::make_unique<parallel::PipelineSchedule>(std::move(plan), std::move(stages), context.group("pipeline"),
                                                      std::move(options));
}

namespace {

std::shared_ptr<torch::nn::Module> find_module(const torch::nn::Module& root, std::string_view name) {
  const auto dot = name.find('.');
  const auto children = root.named_children();
  const auto* child = children.find(std::string(name.substr(0, dot)));
  return child == nullptr || dot == std::string_view::npos ? (child == nullptr ? nullptr : *child)
                                                           : find_module(**child, name.substr(dot + 1));
}

std::shared_ptr<torch::nn::Module> tree_of(const parallel::PipelinePart& part, const torch::nn::Module& whole,
                                           const std::vector<std::string>& names) {
  auto root = std::make_shared<torch::nn::Module>();
  const bool is_listed = !names.empty() && std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return find_module(whole, name) != nullptr;
  }) && dynamic_cast<const parallel::PipelineModel*>(&whole) == nullptr;
  if (is_listed) {
    for (const std::string& name : names) {
      adopt(*root, name, find_module(whole, name));
    }
  } else if (std::all_of(part.full_names.begin(), part.full_names.end(),
                         [](const auto& item) { return item.first == item.second; })) {
    adopt(*root, *part.module);
  } else {
    const auto place = [&](const std::string& name) -> std::pair<std::string, std::string> {
      const auto found = part.full_names.find(name);
      const std::string& full = found == part.full_names.end() ? name : found->second;
      const auto dot = full.rfind('.');
      return dot == std::string::npos ? std::pair(std::string(), full)
                                      : std::pair(full.substr(0, dot), full.substr(dot + 1));
    };
    for (const auto& item : part.module->named_parameters()) {
      const auto [folder, leaf] = place(item.key());
      made_child(*root, folder).register_parameter(leaf, item.value(), item.value().requires_grad());
    }
    for (const auto& item : part.module->named_buffers()) {
      const auto [folder, leaf] = place(item.key());
      made_child(*root, folder).register_buffer(leaf, item.value());
    }
  }
  return root;
}

/// Stages of a rank: a container with the parameters of the modules. Only the schedule runs them.
struct StagesImpl : torch::nn::Module {
  explicit StagesImpl(const std::vector<StagePart>& parts) : torch::nn::Module("danling::PipelineStages") {
    for (const StagePart& part : parts) {
      adopt(*this, *part.tree);
      modules.push_back(part.module);
    }
  }
  at::Tensor forward(const at::Tensor&) {
    fail<StateError>("runner.model",
                     "expected calls by the pipeline schedule only, got a call of `model`, which holds this rank's "
                     "stages; call the base's train_step (evaluate_step, infer_step), and set the loss as "
                     "`criterion`");
  }
  // A stage may have modules that are not in the tree.
  void train(bool on = true) override {
    torch::nn::Module::train(on);
    for (const auto& module : modules) {
      module->train(on);
    }
  }
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
};

}  // namespace

StagePart build_part(const ModelHandle& whole, std::int64_t stage, const ParallelConfig& config,
                     const ParallelContext& context) {
  const std::int64_t stages = stages_of(config, context.topology());
  std::vector<std::string> names;
  if (const auto& all = config.module_fqns_per_model_part) {
    names = names_in(all->at(static_cast<std::size_t>(stage)));
    check_stage_names(whole, *all);
  } else {
    check<ConfigError>(dynamic_cast<parallel::PipelineModel*>(whole.module().get()) != nullptr,
                       "runner.build_pipeline_model_part",
                       "expected 'parallel.module_fqns_per_model_part', a model that is a "
                       "danling::parallel::PipelineModel, or an override of build_pipeline_model_part, got none");
  }
  parallel::PipelinePart part = parallel::build_part(whole.module(), stage, stages, names, context);
  auto tree = tree_of(part, *whole.module(), names);
  return {.stage = stage, .module = part.module, .tree = std::move(tree), .forward = std::move(part.forward)};
}

ModelHandle joined_parts(const std::vector<StagePart>& parts) { return {std::make_shared<StagesImpl>(parts)}; }

std::int64_t micro_batches_of(const ParallelConfig& config, std::int64_t batch_size) {
  static constexpr std::string_view where = "runner.build_pipeline_schedule";
  if (config.pipeline_n_microbatches) {
    return *config.pipeline_n_microbatches;
  }
  check<ConfigError>(batch_size > 0, where,
                     "expected 'parallel.pipeline_n_microbatches', or a loader with a batch size, got neither");
  const std::int64_t size = config.pipeline_microbatch_size;
  check<ConfigError>(batch_size % size == 0, where, "expected 'dataloader.batch_size' (", batch_size,
                     ") to be a multiple of 'parallel.pipeline_microbatch_size' (", size, "), got a remainder of ",
                     batch_size % size);
  return batch_size / size;
}

std::vector<std::pair<std::int64_t, std::int64_t>> micro_ranges(std::int64_t size, std::int64_t nominal,
                                                                std::int64_t micro_batches) {
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  const std::int64_t whole = std::max({size, nominal, std::int64_t(1)});
  const std::int64_t piece = (whole + micro_batches - 1) / micro_batches;
  for (std::int64_t begin = 0; begin < size; begin += piece) {
    out.emplace_back(begin, std::min(piece, size - begin));
  }
  return out;
}

std::vector<at::Tensor> stage_inputs(const State& inputs) {
  std::vector<at::Tensor> out;
  data::each_tensor(inputs, [&](const at::Tensor& tensor) { out.push_back(tensor); });
  return out;
}

at::Tensor weighted_sum(const std::vector<at::Tensor>& losses, const std::vector<double>& shares) {
  const bool counts = std::any_of(shares.begin(), shares.end(), [](double share) { return share > 0.0; });
  at::Tensor sum;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (counts && shares.at(i) == 0.0) {
      continue;  // a mean without valid targets is NaN
    }
    const at::Tensor part = losses[i].detach().reshape({}) * shares.at(i);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

at::Tensor joined_outputs(const std::vector<std::vector<at::Tensor>>& outputs) {
  std::vector<at::Tensor> parts;
  for (const auto& micro_batch : outputs) {
    parts.push_back(micro_batch.at(0));
  }
  return parts.empty() ? at::empty({0}) : at::cat(parts);
}

void fail_prediction() {
  fail<ConfigError>("runner.pipeline",
                    "expected a prediction that is a tensor with parallel.axes.pipeline above 1, got "
                    "another type");
}

void check_counted(bool is_stream, std::string_view split) {
  check<ConfigError>(!is_stream, "runner.build_dataloaders", "expected a dataset for split ", quote(split),
                     " with a pipeline of three or more stages, got a "
                     "stream: middle stages read nothing and cannot count the batches");
}

}  // namespace detail
}  // namespace danling::inline v0
