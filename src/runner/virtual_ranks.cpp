#include <runner/virtual_ranks.hpp>

#include <utility>

#include <danling/core/error.hpp>

#include <distributed/pending.hpp>
#include <optim/params_of.hpp>
#include <runner/data_parallel_layers.hpp>
#include <runner/same_model.hpp>

namespace danling::inline v0::detail {

std::vector<Subtree> shards_of_ranks(std::int64_t processes, std::int64_t virtual_ranks) {
  check<ConfigError>(processes <= virtual_ranks, "runner.init_distributed", "expected at most ", virtual_ranks,
                     " processes with parallel.virtual_ranks: ", virtual_ranks, ", got ", processes,
                     "; start fewer, or set more virtual ranks");
  return subtrees_of_ranks(processes, virtual_ranks);
}

VirtualRanks::VirtualRanks(Group group, std::int64_t virtual_ranks, const DdpConfig& ddp,
                           std::chrono::milliseconds timeout)
    : Parallelism(std::move(group)),
      ranks_(shards_of_ranks(this->group().size(), virtual_ranks)),
      shared_memory_(ddp.shared_memory),
      timeout_(timeout) {}

AxisPlace VirtualRanks::data_share() const {
  const Subtree& own = ranks_[static_cast<std::size_t>(group().rank())];
  return {.rank = own.begin, .size = ranks_.back().end, .num_shares = own.size()};
}

TreeSum::Options VirtualRanks::options() const {
  return {.ranks = ranks_, .shared_memory = shared_memory_, .timeout = timeout_};
}

std::vector<TreeSum*> VirtualRanks::sums() const {
  std::vector<TreeSum*> out = {gradients_.get(), buffers_ ? buffers_->sums() : nullptr};
  std::erase(out, nullptr);
  return out;
}

// Models have the same seed everywhere, but a program may draw from another generator.
void VirtualRanks::prepare(ModelHandle& model, at::Device device) {
  refuse_synced_layers(model, "parallel.virtual_ranks",
                       "shards are computed one after another, and its statistics would need all of them at once; use "
                       "BatchNorm, whose statistics are those of a shard, or unset parallel.virtual_ranks");
  Parallelism::prepare(model, device);
  make_same(group(), model);
  buffers_.emplace(model, group(), options());
}

// Several models throw an error.
void VirtualRanks::prepare_optimizers(const std::vector<optim::Optimizer*>& optimizers) {
  const auto params = optim::detail::params_of(*optimizers.front());
  num_gradients_ = params.size();
  gradients_ = std::make_unique<TreeSum>(params, group(), options());
}

void VirtualRanks::begin_step(const WindowPlace& place) {
  if (place.index == 0) {
    buffers_->keep();
  }
}

StepPacket VirtualRanks::exchange_packets(const StepPacket& mine) {
  StepPacket packet = mine;
  packet.missing = gradients_ != nullptr && (gradients_->missing_shards() > 0 || gradients_->lacks_any());
  const StepPacket all = Parallelism::exchange_packets(packet);
  any_missing_ = all.missing;
  return all;
}

void VirtualRanks::end_shard(optim::Optimizer& optimizer) {
  std::vector<at::Tensor> shard;
  for (const auto& param_group : optimizer.param_groups()) {
    for (const at::Tensor& param : param_group.params) {
      shard.push_back(std::exchange(param.mutable_grad(), at::Tensor()));
      check<StateError>(!shard.back().defined() || shard.back().layout() == at::kStrided, "runner.backward",
                        "expected dense gradients with parallel.virtual_ranks, got a sparse one of shape [",
                        join(param.sizes()), "]; create the embedding with sparse(false)");
    }
  }
  check<StateError>(group().alone() || shard.size() == num_gradients_, "runner.backward", "expected the ",
                    num_gradients_, " parameters that the optimizer had when training began, got ", shard.size(),
                    "; add parameter groups before train() with parallel.virtual_ranks");
  gradients_->push(std::move(shard));
  buffers_->push();
}

void VirtualRanks::reduce_gradients(optim::Optimizer& optimizer) {
  const Wait wait(*this);
  const PendingScope pending("the sum of gradients");
  const std::vector<at::Tensor> sums = gradients_->finish(any_missing_);
  std::size_t index = 0;
  for (const auto& param_group : optimizer.param_groups()) {
    for (const at::Tensor& param : param_group.params) {
      const at::Tensor& sum = sums[index++];
      param.mutable_grad() = sum.defined() ? sum.to(param.scalar_type()) : at::Tensor();
    }
  }
  buffers_->combine();
}

void VirtualRanks::drop_gradients(optim::Optimizer& optimizer) {
  for (TreeSum* const sum : sums()) {
    sum->drop();
  }
  Parallelism::drop_gradients(optimizer);
}

void VirtualRanks::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  for (TreeSum* const sum : sums()) {
    sum->set_timeout(timeout);
  }
  Parallelism::set_timeout(timeout);
}

void VirtualRanks::abort(std::string_view words) {
  for (TreeSum* const sum : sums()) {
    sum->abort(words);
  }
  Parallelism::abort(words);
}

}  // namespace danling::inline v0::detail
