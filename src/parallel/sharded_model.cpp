#include <danling/parallel/sharded_model.hpp>

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <danling/core/error.hpp>

#include "parallel/sharded_parameters.hpp"

namespace danling::inline v0 {
namespace {

/// The parameters of rank 0 on all ranks.
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

ShardedModel::ShardedModel(const std::shared_ptr<torch::nn::Module>& module, const Group& group,
                           const ShardOptions& options) {
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

at::Tensor ShardedModel::trained(const at::Tensor& parameter) { return detail::rows_of_sharded(parameter); }

std::pair<std::int64_t, std::int64_t> ShardedModel::row_range(std::int64_t rows) const {
  const auto range = detail::row_range(rows, parameters_->group().rank(), parameters_->group().size());
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
void ShardedModel::follow(char kind, std::size_t unit) { parameters_->follow(kind, unit); }
void ShardedModel::finish_backward() { parameters_->finish_backward(); }
void ShardedModel::zero_grad() { parameters_->zero_grad(); }

ShardedModel::Whole::Whole(ShardedModel& model, bool writes) : parameters_(model.parameters_), writes_(writes) {
  parameters_->show();
}
ShardedModel::Whole::~Whole() { parameters_->hide_again(writes_); }

}  // namespace danling::inline v0
