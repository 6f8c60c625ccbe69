// The keys of DeepSpeed's JSON that have no option here, and a reader of its mappings.
#include <runner/deepspeed_keys.hpp>

#include <algorithm>
#include <cmath>

#include <danling/core/detail/suggest.hpp>
#include <danling/core/error.hpp>

#include <config/field_spec.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr auto deepspeed_read = "deepspeed.config";
constexpr std::string_view own_units = "parameters are gathered by fsdp.units";
constexpr std::string_view own_sums = "gradients are summed in buckets of the library's own size";
constexpr std::string_view removed = "DeepSpeed has removed it";

// Keys of DeepSpeed 0.19, and keys that it removed, in the order of its documentation.
constexpr DeepSpeedKey known_keys[] = {
    // Accepted: results do not depend on them.
    {"", "prescale_gradients", true, "", "gradients are summed in float32 and divided once"},
    {"", "gradient_predivide_factor", true, "", "gradients are summed in float32 and divided once"},
    {"", "managed_gradient_accumulation", true, "", "the runner owns accumulation: accum_steps"},
    {"", "disable_python_gc", true, "", "there is no garbage collector"},
    {"", "zero_allow_untested_optimizer", true, "", "an optimizer that cannot be sharded is refused by its name"},
    {"", "zero_force_ds_cpu_optimizer", true, "", "there is one implementation of each optimizer for all devices"},
    {"", "timers", true, "", "the log has samples per second and the time that steps wait for data"},
    {"", "vocabulary_size", true, "", "it is only checked for being a multiple of 8"},
    {"zero_optimization", "contiguous_gradients", true, "", "gradients of a unit are always contiguous"},
    {"zero_optimization", "reduce_scatter", true, "", "gradients in parts are always reduced and scattered"},
    {"zero_optimization", "reduce_bucket_size", true, "", own_sums},
    {"zero_optimization", "use_multi_rank_bucket_allreduce", true, "", own_sums},
    {"zero_optimization", "allgather_partitions", true, "", own_units},
    {"zero_optimization", "allgather_bucket_size", true, "", own_units},
    {"zero_optimization", "overlap_comm", true, "", "sums overlap with the backward pass where the stack can"},
    {"zero_optimization", "load_from_fp32_weights", true, "",
     "checkpoints hold the weights that the optimizer updates"},
    {"zero_optimization", "elastic_checkpoint", true, "", "checkpoints load with any number of processes"},
    {"zero_optimization", "sub_group_size", true, "", "the optimizer updates all parameters at once"},
    {"zero_optimization", "stage3_prefetch_bucket_size", true, "", own_units},
    {"zero_optimization", "stage3_param_persistence_threshold", true, "", own_units},
    {"zero_optimization", "stage3_model_persistence_threshold", true, "", own_units},
    {"zero_optimization", "stage3_max_live_parameters", true, "", own_units},
    {"zero_optimization", "stage3_max_reuse_distance", true, "", own_units},
    {"zero_optimization", "stage3_module_granularity_threshold", true, "", own_units},
    {"zero_optimization", "stage3_use_all_reduce_for_fetch_params", true, "", own_units},
    {"zero_optimization", "stage3_allgather_sequential", true, "", own_units},
    {"zero_optimization", "stage3_gather_16bit_weights_on_model_save", true, "",
     "model.pth is always whole; checkpoint.export_dtype is its type"},
    {"zero_optimization", "stage3_gather_fp16_weights_on_model_save", true, "",
     "model.pth is always whole; checkpoint.export_dtype is its type"},
    {"zero_optimization", "legacy_stage1", true, "", "there is one implementation of stage 1"},
    {"zero_optimization", "round_robin_gradients", true, "", "parts of gradients stay on their device"},
    {"zero_optimization", "parameter_alignment", true, "", "parts of parameters are cut by rows"},
    {"zero_optimization", "memory_efficient_linear", true, "", "LibTorch's linear layers are used as they are"},
    {"zero_optimization", "pipeline_loading_checkpoint", true, "", "one process reads a checkpoint at a time"},
    {"zero_optimization", "override_module_apply", true, "", "models are built whole, then sharded"},
    {"zero_optimization", "log_trace_cache_warnings", true, "", "there is no trace of fetched parameters"},
    {"zero_optimization", "enable_sanity_checks", true, "", "comm.debug compares what processes exchange"},
    {"zero_optimization", "save_muon_momentum_buffer_in_memory", true, "", "states of optimizers stay in memory"},
    // Refused.
    {"", "gradient_allreduce_op", false, "mean", "gradients are means over the samples of all processes"},
    {"", "sparse_gradients", false, "false", removed},
    {"", "disable_allgather", false, "false", "ranks share their parts after each update"},
    {"", "dump_state", false, "false", "set summary of the config"},
    {"", "memory_breakdown", false, "false", "set profiling.profile_memory of the config"},
    {"", "wall_clock_breakdown", false, "false", "set profiling.enabled of the config"},
    {"", "log_level", false, "", "set log_level of the config"},
    {"", "use_data_before_expert_parallelism", false, "false", "set parallel.axes of the config with stack: parallel"},
    {"", "seq_parallel_communication_data_type", false, "fp32", "set parallel.axes of the config with stack: parallel"},
    {"", "sequence_parallel_size", false, "1", "set parallel.axes.context of the config with stack: parallel"},
    {"", "tensor_parallel", false, "", "set parallel.axes.tensor of the config with stack: parallel"},
    {"", "expert_parallel", false, "", "set parallel.axes.expert of the config with stack: parallel"},
    {"", "pipeline", false, "", "set parallel.axes.pipeline of the config with stack: parallel"},
    {"", "activation_checkpointing", false, "", "set recompute of the config: names of modules"},
    {"", "flops_profiler", false, "", "the log has FLOP/s; set performance of the config, or summary"},
    {"", "comms_logger", false, "", "set profiling.enabled of the config"},
    {"", "comet", false, "", "set wandb, mlflow or tensorboard of the config"},
    {"", "data_types", false, "fp32", "gradients and their sums have the type of the parameters"},
    {"", "compile", false, "", "set compile of the config with stack: ddp"},
    {"", "checkpoint", false, "", "set checkpoint of the config"},
    {"", "data_efficiency", false, "", "write a Sampler for the order of samples"},
    {"", "datastates_ckpt", false, "", "checkpoint.async_mode of the config writes while training continues"},
    {"", "weight_quantization", false, "", "weights are not quantized"},
    {"", "hybrid_engine", false, "", "it is for generation inside of training"},
    {"", "autotuning", false, "", "set find_batch_size of the config with stack: ddp"},
    {"", "aio", false, "", "parameters and states stay in memory"},
    {"", "seed", false, "", "DeepSpeed has no such key; set seed of the config"},
    {"", "nebula", false, "", removed},
    {"", "compression_training", false, "", removed},
    {"", "amp", false, "", "DeepSpeed has removed it; set bf16 or fp16"},
    {"", "quantize_training", false, "", removed},
    {"", "eigenvalue", false, "", removed},
    {"", "sparse_attention", false, "", removed},
    {"", "elasticity", false, "", "DeepSpeed has removed it; torchrun --nnodes MIN:MAX starts other numbers of nodes"},
    {"", "graph_harvesting", false, "false", removed},
    {"", "curriculum_learning", false, "", removed},
    {"", "progressive_layer_drop", false, "", removed},
    {"zero_optimization", "compute_grad_norm", false, "true",
     "clipping needs the norm; unset gradient_clipping instead"},
    {"zero_optimization", "ignore_unused_parameters", false, "true", "a parameter without a gradient is no error"},
    {"zero_optimization", "zenflow", false, "", "states of optimizers are updated with their parameters"},
    {"zero_optimization", "zero_hpz_partition_size", false, "1",
     "set parallel.axes.replicate of the config with stack: parallel"},
    {"zero_optimization", "zero_quantized_weights", false, "false", "messages between processes are not quantized"},
    {"zero_optimization", "zero_quantized_nontrainable_weights", false, "false",
     "messages between processes are not quantized"},
    {"zero_optimization", "zero_quantized_gradients", false, "false", "messages between processes are not quantized"},
    {"zero_optimization", "leaf_module", false, "", "set fsdp.units of the config"},
    {"zero_optimization", "mics_shard_size", false, "-1", removed},
    {"zero_optimization", "mics_hierarchical_params_gather", false, "false", removed},
    {"zero_optimization", "zeropp_loco_param", false, "", removed},
};

std::string last_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

/// True if the value disables its feature: also `{}`, `{"enabled": false}`, and a mapping of such values.
bool is_neutral(const ConfigTree& tree, std::string_view neutral) {
  if (tree.is_null()) return true;
  if (tree.is_map()) {
    const ConfigTree* enabled = tree.find("enabled");
    if (enabled != nullptr) return enabled->is_bool() && !enabled->boolean();
    const auto& entries = tree.map();
    return std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
      return (entry.value.is_bool() && !entry.value.boolean()) || is_neutral(entry.value, neutral);
    });
  }
  const std::string own = inline_yaml(tree);
  while (!neutral.empty()) {
    const auto space = neutral.find(' ');
    if (own == neutral.substr(0, space)) return true;
    neutral = space == std::string_view::npos ? std::string_view() : neutral.substr(space + 1);
  }
  return false;
}

}  // namespace

std::span<const DeepSpeedKey> deepspeed_keys() { return known_keys; }

DeepSpeedSection::DeepSpeedSection(const ConfigTree* tree, std::string path, std::vector<std::string>& notes)
    : tree_(tree != nullptr && tree->is_null() ? nullptr : tree), path_(std::move(path)), notes_(&notes) {
  check<ConfigError>(tree_ == nullptr || tree_->is_map(), deepspeed_read, "expected a mapping for ", quote(path_),
                     ", got ", tree_ == nullptr ? "" : inline_yaml(*tree_));
}

std::string DeepSpeedSection::path_of(std::string_view key) const { return concat(path_, ".", key); }

const ConfigTree* DeepSpeedSection::take(std::string_view key) {
  read_.emplace_back(key);
  const ConfigTree* found = tree_ == nullptr ? nullptr : tree_->find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool DeepSpeedSection::has(std::string_view key) const {
  const ConfigTree* found = tree_ == nullptr ? nullptr : tree_->find(key);
  return found != nullptr && !found->is_null();
}

void DeepSpeedSection::wrong(std::string_view key, std::string_view expected, const ConfigTree& got) const {
  const bool is_auto = got.is_string() && got.string() == "auto";
  fail<ConfigError>(deepspeed_read, "expected ", expected, " for ", quote(path_of(key)), ", got ", inline_yaml(got),
                    is_auto ? ", which Hugging Face's Trainer replaces; write the value" : "");
}

std::optional<double> DeepSpeedSection::number(std::string_view key) {
  const ConfigTree* found = take(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_integer() && !found->is_double()) wrong(key, "a number", *found);
  if (!std::isfinite(found->number())) wrong(key, "a finite number", *found);
  return found->number();
}

std::optional<std::int64_t> DeepSpeedSection::integer(std::string_view key) {
  const ConfigTree* found = take(key);
  if (found == nullptr) return std::nullopt;
  constexpr double exact = 9007199254740992.0;  // 2^53
  if (found->is_double() && std::trunc(found->number()) == found->number() && std::abs(found->number()) <= exact) {
    return static_cast<std::int64_t>(found->number());
  }
  if (!found->is_integer()) wrong(key, "an integer", *found);
  return found->integer();
}

std::optional<bool> DeepSpeedSection::boolean(std::string_view key) {
  const ConfigTree* found = take(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_bool()) wrong(key, "true or false", *found);
  return found->boolean();
}

std::optional<std::string> DeepSpeedSection::text(std::string_view key) {
  const ConfigTree* found = take(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_string()) wrong(key, "text", *found);
  return found->string();
}

std::vector<double> DeepSpeedSection::numbers(std::string_view key) {
  const ConfigTree* found = take(key);
  if (found == nullptr) return {};
  std::vector<double> out;
  const auto add = [&](const ConfigTree& item) {
    if (!item.is_integer() && !item.is_double()) wrong(key, "a number, or a list of numbers", *found);
    out.push_back(item.number());
  };
  if (found->is_list()) {
    std::for_each(found->list().begin(), found->list().end(), add);
  } else {
    add(*found);
  }
  if (out.empty()) wrong(key, "a number, or a list of numbers", *found);
  return out;
}

std::optional<std::pair<double, double>> DeepSpeedSection::pair(std::string_view key) {
  const ConfigTree* found = tree_ == nullptr ? nullptr : tree_->find(key);
  const auto values = numbers(key);
  if (values.empty()) return std::nullopt;
  if (values.size() != 2) wrong(key, "two numbers", *found);
  return std::pair(values[0], values[1]);
}

DeepSpeedSection DeepSpeedSection::section(std::string_view key) {
  return DeepSpeedSection(take(key), path_of(key), *notes_);
}

void DeepSpeedSection::finish() {
  if (tree_ == nullptr) return;
  const std::string own = path_ == "deepspeed" ? std::string() : last_of(path_);
  for (const auto& entry : tree_->map()) {
    const std::string& key = entry.key.string();
    if (std::find(read_.begin(), read_.end(), key) != read_.end()) continue;
    const auto* rule = std::find_if(std::begin(known_keys), std::end(known_keys), [&](const DeepSpeedKey& known) {
      return known.section == own && known.key == key;
    });
    if (rule == std::end(known_keys)) {
      std::vector<std::string> known = read_;
      for (const DeepSpeedKey& other : known_keys) {
        if (other.section == own) known.emplace_back(other.key);
      }
      fail<ConfigError>(deepspeed_read, "expected a key of DeepSpeed, got ", quote(path_of(key)),
                        did_you_mean(key, known));
    }
    if (rule->accepted) {
      if (!entry.value.is_null()) notes_->push_back(concat(path_of(key), ": ", rule->text));
      continue;
    }
    check<ConfigError>(is_neutral(entry.value, rule->neutral), deepspeed_read, "expected no ", quote(path_of(key)),
                       ", got ", inline_yaml(entry.value), ", which is not available: ", rule->text);
  }
}

}  // namespace danling::inline v0::detail
