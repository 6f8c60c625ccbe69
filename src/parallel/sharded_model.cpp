#include <danling/parallel/sharded_model.hpp>

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <danling/core/error.hpp>

#include <parallel/sharded_parameters.hpp>
#include <parallel/sharded_tensor.hpp>

namespace danling::inline v0 {
namespace {

/// Broadcasts the parameters of rank 0 to all ranks.
void broadcast_parameters(const torch::nn::Module& module, const Group& group) {
  std::string mine;
  for (const auto& entry : module.named_parameters()) {
    const at::Tensor& value = entry.value();
    mine += concat(entry.key(), " ", c10::toString(value.scalar_type()), " [", join(value.sizes()), "]\n");
  }
  const auto all = group.all_gather(mine);
  const auto other = std::find_if(all.begin(), all.end(), [&](const std::string& theirs) { return theirs != all[0]; });
  check<DistributedError>(other == all.end(), "parallel.fsdp",
                          "expected the same parameters on all ranks, got others on rank ", other - all.begin());
  const at::NoGradGuard no_grad;
  for (const auto& entry : module.named_parameters()) {
    at::Tensor value = entry.value().detach();
    group.broadcast(value, 0);
  }
}

}  // namespace

void detail::check_options(const ShardOptions& options) {
  static constexpr std::string_view where = "parallel.fsdp";
  check<ConfigError>(options.stage >= 1 && options.stage <= 3, where, "expected stage 1, 2 or 3, got ", options.stage);
  check<ConfigError>(options.prefetch >= 0, where, "expected a prefetch of 0 units or more, got ", options.prefetch);
  check<ConfigError>(options.virtual_ranks >= 0, where, "expected 0 virtual ranks or more, got ",
                     options.virtual_ranks);
  const ShardPrecision& precision = options.mixed_precision;
  for (const auto& [name, dtype] :
       {std::pair("param_dtype", precision.param_dtype), std::pair("reduce_dtype", precision.reduce_dtype),
        std::pair("output_dtype", precision.output_dtype)}) {
    check<ConfigError>(dtype == at::ScalarType::Undefined || at::isFloatingType(dtype), where,
                       "expected a floating type for mixed_precision.", name, ", got ", c10::toString(dtype));
  }
  check<ConfigError>(options.stage == 3 || precision.param_dtype == at::ScalarType::Undefined, where,
                     "expected stage 3 with mixed_precision.param_dtype, got stage ", options.stage,
                     ", whose parameters are those of the module");
  check<ConfigError>(options.stage == 3 || !options.offload, where, "expected stage 3 with offload, got stage ",
                     options.stage, ", whose rows are parts of the module's parameters");
}

ShardedModel::ShardedModel(const std::shared_ptr<torch::nn::Module>& module, const Group& group,
                           const ShardOptions& options) {
  detail::check_options(options);
  output_dtype_ = options.mixed_precision.output_dtype;
  for (const auto& entry : module->named_parameters()) {
    check<StateError>(!detail::is_sharded(entry.value()), "parallel.fsdp",
                      "expected parameters of no other ShardedModel, got ", quote(entry.key()));
  }
  broadcast_parameters(*module, options.replicas);
  broadcast_parameters(*module, group);
  parameters_ = std::make_shared<detail::ShardedParameters>(*module, group, options);
  parameters_->hide();
}

ShardedModel::~ShardedModel() = default;

std::vector<std::pair<std::string, at::Tensor>> ShardedModel::named_parameters() const {
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const auto& unit : parameters_->units()) {
    for (const auto& parameter : unit->parameters()) {
      out.emplace_back(parameter.name, parameter.rows);
    }
  }
  return out;
}

at::Tensor ShardedModel::rows_of(const at::Tensor& parameter) const {
  for (const auto& unit : parameters_->units()) {
    for (const auto& known : unit->parameters()) {
      if (known.parameter.is_same(parameter)) {
        return known.rows;
      }
    }
  }
  fail<StateError>("parallel.fsdp", "expected a parameter of the sharded module, got a tensor of [",
                   join(parameter.sizes()), "]");
}

at::Tensor ShardedModel::to_local(const at::Tensor& parameter) { return detail::rows_of_sharded(parameter); }

at::Tensor ShardedModel::leaf(const at::Tensor& parameter) {
  const detail::ShardMeta* meta = detail::shard_meta(parameter);
  return meta != nullptr && meta->values.defined() ? meta->values : parameter;
}

std::pair<std::int64_t, std::int64_t> ShardedModel::row_range(std::int64_t rows) const {
  const auto range = parameters_->split().range(rows, parameters_->group().rank());
  return {range.begin, range.count};
}

std::vector<std::pair<std::string, std::int64_t>> ShardedModel::units() const {
  std::vector<std::pair<std::string, std::int64_t>> out;
  for (const auto& unit : parameters_->units()) {
    out.emplace_back(unit->name(), unit->numel());
  }
  return out;
}

ShardedModel::Step::Step(ShardedModel& model) : parameters_(model.parameters_) { parameters_->enter_step(); }
ShardedModel::Step::~Step() { parameters_->leave_step(); }

void ShardedModel::set_requires_gradient_sync(bool value) { parameters_->set_sync(value); }
void ShardedModel::set_announcer(Announcer announcer) { parameters_->set_announcer(std::move(announcer)); }
void ShardedModel::join_collective(char kind, std::size_t unit) { parameters_->join_collective(kind, unit); }
void ShardedModel::finish_backward() { parameters_->finish_backward(); }
void ShardedModel::update_parameters() { parameters_->update_parameters(); }
void ShardedModel::end_shard() { parameters_->end_shard(); }
bool ShardedModel::has_missing_shards() const { return parameters_->has_missing_shards(); }
at::Tensor ShardedModel::squared_grad_norm() const { return parameters_->squared_grad_norm(); }
void ShardedModel::abort(std::string_view reason) { parameters_->abort(reason); }

at::Tensor ShardedModel::cast_outputs(const at::Tensor& outputs) const {
  const bool casts = output_dtype_ != at::ScalarType::Undefined && outputs.defined() && outputs.is_floating_point();
  return casts ? outputs.to(output_dtype_) : outputs;
}

ShardedModel::Traffic ShardedModel::traffic() const {
  const detail::ShardTraffic* traffic = parameters_->traffic();
  return traffic == nullptr ? Traffic() : Traffic{traffic->bytes().gathered, traffic->bytes().reduced};
}

std::string ShardedModel::transport() const {
  return parameters_->traffic() == nullptr ? "one process" : parameters_->traffic()->name();
}

void ShardedModel::zero_grad() { parameters_->zero_grad(); }

ShardedModel::FullParameters::FullParameters(ShardedModel& model, bool writes)
    : parameters_(model.parameters_), writes_(writes) {
  parameters_->enter_full_parameters();
}
ShardedModel::FullParameters::~FullParameters() { parameters_->leave_full_parameters(writes_); }

}  // namespace danling::inline v0
