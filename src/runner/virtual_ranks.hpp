// Virtual ranks: the same bits on any number of processes, since every global batch is a fixed number of shards.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <danling/runner/parallelism.hpp>
#include <danling/runner/process_options.hpp>

#include <distributed/tree_sum.hpp>
#include <runner/shard_buffers.hpp>

namespace danling::inline v0::detail {

/// The shards of each process. @throws ConfigError for more processes than virtual ranks
std::vector<Subtree> shards_of_ranks(std::int64_t processes, std::int64_t virtual_ranks);

/// Data parallel training over V virtual ranks: each process computes a subtree of shards, one after another. Gradients
/// and buffers are added along the tree of all shards; generators belong to a shard, not to a process.
class VirtualRanks : public Parallelism {
 public:
  /// @throws ConfigError for more processes than virtual ranks
  VirtualRanks(Group group, std::int64_t virtual_ranks, const DdpConfig& ddp, std::chrono::milliseconds timeout);

  std::string_view name() const override { return "virtual ranks"; }
  AxisPlace data_share() const override;
  /// The run's seed on every rank, since each shard has a seed.
  std::uint64_t seed(std::uint64_t run_seed) const override { return run_seed; }
  bool sums_gradients() const override { return true; }
  bool computes_shards() const override { return true; }

  void prepare(ModelHandle& model, at::Device device) override;
  void prepare_optimizers(const std::vector<optim::Optimizer*>& optimizers) override;

  void begin_step(const WindowPlace& place) override;
  StepPacket exchange_packets(const StepPacket& mine) override;
  void end_shard(optim::Optimizer& optimizer) override;
  void reduce_gradients(optim::Optimizer& optimizer) override;
  void drop_gradients(optim::Optimizer& optimizer) override;
  std::string unrecordable_reason() const override { return ""; }
  void abort(std::string_view words) override;
  void set_timeout(std::chrono::milliseconds timeout) override;

 private:
  TreeSum::Options options() const;
  std::vector<TreeSum*> sums() const;

  std::vector<Subtree> ranks_;
  bool shared_memory_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<TreeSum> gradients_;
  std::size_t num_gradients_ = 0;
  std::optional<ShardBuffers> buffers_;
  bool any_missing_ = true;  ///< in the last packet
};

}  // namespace danling::inline v0::detail
