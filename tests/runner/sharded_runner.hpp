// Sharded runners as ranks of a test's group.
#pragma once

#include <danling/runner/parallel_parts.hpp>

#include "ddp_runner.hpp"
#include "runner/sharded_parallel.hpp"

namespace runner_test {

/// `Base` under `stack: fsdp` over `group`; alone, one process.
template <class Base = TinyRunner>
class FsdpRunner : public DdpRunner<Base> {
 public:
  FsdpRunner(const TinyConfig& config, const dl::Group& group) : DdpRunner<Base>(config, group), group_(group) {}

  std::string numbers() {
    const auto exposed = this->gather_full_state(/*writes=*/false);
    return DdpRunner<Base>::numbers();
  }

 protected:
  void init_distributed() override {
    const auto virtual_ranks = this->config().parallel.virtual_ranks;
    if (group_.alone() && !dl::detail::needs_grid(this->config())) {
      this->set_parallelism(std::make_unique<dl::Parallelism>(dl::ProcessIdentity()));
    } else {
      dl::ParallelAxesConfig axes = this->config().parallel.axes;
      axes.shard = axes.any() ? axes.shard : -1;
      auto topology = dl::detail::grid_topology(group_.size(), group_.rank(), axes.list());
      this->set_parallelism(std::make_unique<dl::detail::ShardedParallel>(
          group_, std::move(topology), this->config().fsdp, std::vector<std::string>(), virtual_ranks));
    }
  }

 private:
  dl::Group group_;
};

template <class Base = TinyRunner>
std::string train_fsdp(const TinyConfig& config, const dl::Group& group) {
  const Folder folder;
  TinyConfig own = config;
  own.workspace_root = folder.path().string();
  FsdpRunner<Base> runner(own, group);
  runner.train();
  return runner.numbers();
}

inline TinyConfig fsdp_config() {
  TinyConfig config;
  config.stack = "fsdp";
  config.epochs = 2;
  config.dropout = 0;
  config.hidden = 32;
  config.optim.type = "sgd";
  config.optim.momentum = 0.9;
  return config;
}

}  // namespace runner_test
