// Runners as ranks of a test's group, shared by the tests with several processes.
#pragma once

#include <support/ranks.hpp>

#include "fixture.hpp"

namespace runner_test {

/// `Base` as a rank of `group`, which takes the place of a launcher's processes.
template <class Base = TinyRunner, class P = dl::Parallelism>
class RankRunner : public Base {
 public:
  RankRunner(const TinyConfig& config, const dl::Group& group) : Base(config), group_(group) {}

 protected:
  void init_distributed() override { this->set_parallelism(std::make_unique<P>(group_)); }

 private:
  dl::Group group_;
};

/// Ranks that share the 20 validation records in batches of 3.
class SharingRunner : public RankRunner<> {
 public:
  SharingRunner(const TinyConfig& config, const dl::Group& group) : RankRunner(config, group) {
    dataloaders["val"] = std::make_shared<dl::data::Loader<dl::Batch>>(
        datasets.at("val"),
        dl::data::LoaderOptions{
            .batch_size = 3, .split = "val", .shard = {.rank = group.rank(), .world_size = group.size()}});
  }
};

}  // namespace runner_test
