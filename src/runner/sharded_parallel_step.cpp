// Sharded training: steps, norms of gradients, and evaluation.
#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>
#include <danling/optim/clip.hpp>

#include <distributed/pending.hpp>
#include <optim/plan.hpp>
#include <runner/rank_messages.hpp>
#include <runner/sharded_parallel.hpp>

namespace danling::inline v0::detail {
namespace {

/// Message of a rank that has fewer shards of a batch than others.
constexpr std::string_view no_more_shards = "none";

/// Names a collective inside a step, for the ranks that follow it.
std::string announcement(std::size_t model, char kind, std::size_t unit) { return concat(model, " ", kind, " ", unit); }
bool is_announcement(const std::string& text) { return text.size() >= 5; }

}  // namespace

// ---- a step ---------------------------------------------------------------------------------------------------------

void ShardedParallel::sync_gradients(bool last) {
  for (const Sharded& sharded : models_) {
    sharded.model->set_requires_gradient_sync(syncs_ && last);
  }
}

void ShardedParallel::enter(bool syncs, bool announces) {
  syncs_ = syncs;
  announces_ = announces;
  announce(announces);
  for (const Sharded& sharded : models_) {
    sharded.model->set_requires_gradient_sync(syncs);
    steps_.push_back(std::make_unique<ShardedModel::Step>(*sharded.model));
  }
}

void ShardedParallel::leave() noexcept {
  steps_.clear();
  announce(false);
}

/// Enables the announcement of the step's collectives to ranks without a batch.
void ShardedParallel::announce(bool announces) {
  for (std::size_t at = 0; at < models_.size(); ++at) {
    models_[at].model->set_announcer(
        announces
            ? [this, at](char kind,
                         std::size_t unit) { meet(*announced_to_, Purpose::statistics, announcement(at, kind, unit)); }
            : ShardedModel::Announcer());
  }
}

// Ranks that have ended their pass wait in exchange_packets(): this exchange finds them; then each collective is
// announced.
void ShardedParallel::begin_step(const WindowPlace& place) {
  for (Sharded& sharded : models_) {
    if (sharded.of_shards && place.index == 0) {
      sharded.of_shards->keep();
    }
  }
  if (has_ended_) {
    return;
  }
  const auto messages = meet(group(), Purpose::statistics, "");
  const bool follows = std::any_of(messages.begin(), messages.end(), [](const Message& message) {
    return message.purpose == Purpose::ended || message.body == no_more_shards;
  });
  check<DataError>(!follows || !needs_equal_batches(), "runner.train",
                   "expected equally many batches on all ranks with parallel.axes.pipeline and shard above 1, got a "
                   "rank without more; set dataloader.drop_last");
  announced_to_ = &group();
  enter(place.closes, follows);
}

// With several models, a model's gradients are those of the tensors in its graph, not of rows.
void ShardedParallel::backward(const at::Tensor& loss, const at::Tensor& seed, const WindowPlace& place,
                               const BackwardOptions& options) {
  BackwardOptions own = options;
  for (at::Tensor& input : own.inputs) {
    const auto found = leaves_.find(input.unsafeGetTensorImpl());
    input = found != leaves_.end() ? found->second : input;
  }
  Parallelism::backward(loss, seed, place, own);
}

void ShardedParallel::end_step(const WindowPlace&) noexcept { leave(); }

void ShardedParallel::join_exchange(const std::vector<std::string>& shares) {
  for (const std::string& share : shares) {
    if (is_announcement(share)) {
      const auto space = share.find(' ');
      ShardedModel& model = *models_.at(static_cast<std::size_t>(std::stoul(share))).model;
      model.join_collective(share[space + 1], static_cast<std::size_t>(std::stoul(share.substr(space + 3))));
      return;
    }
  }
}

void ShardedParallel::follow_shards(const Group& peers) {
  for (;;) {
    const auto messages = meet(peers, Purpose::statistics, no_more_shards);
    std::vector<std::string> shares;
    bool inside = false;
    for (const Message& message : messages) {
      if (message.purpose != Purpose::statistics && message.purpose != Purpose::ended) {
        fail_apart(messages, "parallelism.agree");
      }
      const bool waits = message.purpose == Purpose::ended || message.body == no_more_shards;
      inside = inside || !waits;
      shares.push_back(waits ? std::string() : message.body);
    }
    if (!inside) {
      return;
    }
    join_exchange(shares);
  }
}

StepPacket ShardedParallel::exchange_packets(const StepPacket& mine) {
  if (computes_shards() && !mine.exhausted && !group().alone()) {
    follow_shards(group());
  }
  StepPacket counted = mine;
  if (!reports_metrics()) {  // another rank has the same samples
    counted.weight = counted.loss = counted.loss_weight = 0.0;
    counted.unit = 0;
  }
  const StepPacket all = Parallelism::exchange_packets(counted);
  has_ended_ = mine.exhausted && !all.all_ended;
  source_ = all.source;
  return all;
}

void ShardedParallel::end_shard(optim::Optimizer&) {
  for (Sharded& sharded : models_) {
    sharded.model->end_shard();
    sharded.of_shards->push();
  }
}

bool ShardedParallel::Sharded::is_of(const optim::Optimizer& optimizer) const {
  const auto& groups = optimizer.param_groups();
  return std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
    return std::any_of(group.params.begin(), group.params.end(),
                       [&](const at::Tensor& param) { return trained.count(param.unsafeGetTensorImpl()) > 0; });
  });
}

void ShardedParallel::reduce_gradients(optim::Optimizer& optimizer) {
  const Wait wait(*this);
  const PendingScope pending("the sum of gradients");
  announce(false);  // all ranks are here
  for (Sharded& sharded : models_) {
    const bool is_updated = models_.size() == 1 || sharded.is_of(optimizer);
    // If this rank has ended its pass, or at the end of a run, the last step did not ask for a sum. For other models,
    // through which the loss was computed, this only frees memory.
    sharded.model->set_requires_gradient_sync(is_updated);
    sharded.model->finish_backward();
    sharded.model->set_requires_gradient_sync(syncs_);
    sharded.is_stale |= is_updated;
    if (sharded.of_shards) {
      sharded.of_shards->combine();
    } else if (source_ >= 0) {
      const auto source = context_.topology().domain_rank("fsdp", source_);
      sharded.buffers.broadcast(context_.group("fsdp"), static_cast<int>(source));
    }
  }
  announce(announces_ && !steps_.empty());
}

void ShardedParallel::bring_up_to_date(Sharded& sharded) {
  if (std::exchange(sharded.is_stale, false)) {
    sharded.model->update_parameters();
  }
}

// Called after the update on all ranks. The loss of the next model may use this model's parameters.
void ShardedParallel::zero_grad(optim::Optimizer& optimizer) {
  Parallelism::zero_grad(optimizer);
  if (models_.size() > 1) {
    std::for_each(models_.begin(), models_.end(), [this](Sharded& sharded) { bring_up_to_date(sharded); });
  }
}

void ShardedParallel::end_updates() {
  std::for_each(models_.begin(), models_.end(), [this](Sharded& sharded) { bring_up_to_date(sharded); });
}

void ShardedParallel::abort(std::string_view words) {
  for (const Sharded& sharded : models_) {
    sharded.model->abort(words);
    if (TreeSum* const sums = sharded.of_shards ? sharded.of_shards->sums() : nullptr) {
      sums->abort(words);
    }
  }
  Parallelism::abort(words);
}

void ShardedParallel::set_timeout(std::chrono::milliseconds timeout) {
  for (const std::string& domain : context_.topology().domains()) {
    context_.group(domain).set_timeout(timeout);
  }
  for (const Sharded& sharded : models_) {
    if (TreeSum* const sums = sharded.of_shards ? sharded.of_shards->sums() : nullptr) {
      sums->set_timeout(timeout);
    }
  }
  Parallelism::set_timeout(timeout);
}

void ShardedParallel::drop_gradients(optim::Optimizer& optimizer) {
  for (const Sharded& sharded : models_) {
    if (models_.size() > 1 && !sharded.is_of(optimizer)) {
      continue;
    }
    sharded.model->zero_grad();
    if (TreeSum* const sums = sharded.of_shards ? sharded.of_shards->sums() : nullptr) {
      sums->drop();
    }
  }
  Parallelism::drop_gradients(optimizer);
}

at::Tensor ShardedParallel::nonfinite_flag(const std::vector<at::Tensor>& params) {
  at::Tensor flag = optim::nonfinite_flag(params).clone();
  group().all_reduce(flag, ReduceOp::max);
  return flag;
}

at::Tensor ShardedParallel::clip_grad_norm(const std::vector<at::Tensor>& params, double max_norm,
                                           optim::GradScale& scale) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> owned;
  std::copy_if(params.begin(), params.end(), std::back_inserter(owned),
               [this](const at::Tensor& param) { return owns(param); });
  // On one device on all ranks, also on one that owns nothing: another path would round differently.
  at::Tensor mine = optim::grad_norm(owned);
  mine = params.empty() ? mine : mine.to(params.front().device());
  at::Tensor squares;
  if (computes_shards()) {  // over all parameters, since there is one model
    squares = models_.front().model->squared_grad_norm();
  } else {
    squares = mine.to(at::kDouble).square();
    group().all_reduce(squares);
  }
  const at::Tensor norm = squares.sqrt().div_(scale.divisor);
  if (scale.scale.defined()) {
    norm.div_(scale.scale.detach().reshape({}).to(norm.device(), at::kDouble));
  }
  optim::detail::limit_norm(norm, max_norm, scale);
  return norm.to(mine.scalar_type());
}

// ---- evaluation -----------------------------------------------------------------------------------------------------

bool ShardedParallel::begin_forward(bool mine) {
  for (;;) {
    const Group& peers = context_.group("fsdp");  // stages of a pipeline run at different points
    const auto flags = exchange(peers, mine ? "1" : "0");
    const auto having = std::count(flags.begin(), flags.end(), "1");
    if (having == 0) {
      return false;
    }
    if (mine) {
      announced_to_ = &peers;
      // With virtual ranks a batch may have shards on some ranks that others lack.
      enter(true, having < std::ssize(flags) || (computes_shards() && !peers.alone()));
      return true;
    }
    for (bool inside = true; inside;) {  // until the others have ended this pass
      std::vector<std::string> shares;
      for (const Message& message : meet(peers, Purpose::ended, "")) {
        shares.push_back(message.purpose == Purpose::statistics ? message.body : std::string());
      }
      inside = std::any_of(shares.begin(), shares.end(), is_announcement);
      join_exchange(shares);
    }
  }
}

void ShardedParallel::end_forward() {
  const bool announced = announces_;
  leave();
  if (!announced) {
    return;
  }
  if (computes_shards()) {
    follow_shards(context_.group("fsdp"));
  } else {
    meet(context_.group("fsdp"), Purpose::statistics, "");
  }
}

}  // namespace danling::inline v0::detail
