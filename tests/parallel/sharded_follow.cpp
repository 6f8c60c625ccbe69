// Ranks without a batch that follow the others, with replicas, in every stage: gradients are the sums of those that
// have one.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <torch/nn.h>

#include <danling/core/error.hpp>
#include <danling/parallel/sharded_model.hpp>
#include <danling/parallel/topology.hpp>

#include <support/ranks.hpp>

namespace sharded_follow_test {
namespace {

using danling::Group;
using danling::ShardedModel;
using danling::ShardOptions;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::expect;
using danling_test::run_ranks;
using torch::Tensor;

/// Fills uninitialised memory with NaN for its lifetime.
struct PoisonedMemory {
  PoisonedMemory() {
    at::globalContext().setDeterministicAlgorithms(true, false);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
  }
  ~PoisonedMemory() { at::globalContext().setDeterministicAlgorithms(false, false); }
  PoisonedMemory(const PoisonedMemory&) = delete;
  PoisonedMemory& operator=(const PoisonedMemory&) = delete;
};

/// `sometimes` gets a gradient on rank 0 alone, `never` on none.
struct FollowNetImpl : torch::nn::Module {
  FollowNetImpl() {
    first = register_module("first", torch::nn::Linear(3, 5));
    second = register_module("second", torch::nn::Linear(5, 2));
    sometimes = register_parameter("sometimes", torch::full({3}, 0.5));
    never = register_parameter("never", torch::ones({3}));
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& x, bool uses) {
    const Tensor out = second(torch::tanh(first(x)));
    Tensor total;
    {
      const torch::AutoGradMode grad(uses);  // the same operators on all ranks
      total = sometimes.sum();
    }
    return out * total;
  }
  torch::nn::Linear first = nullptr, second = nullptr;
  Tensor sometimes, never;
};
TORCH_MODULE(FollowNet);

Tensor input_of(int rank, std::int64_t pass) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(100 * pass + rank));
  return at::randn({4, 3}, generator, at::TensorOptions().dtype(at::kDouble));
}

void backward_of(FollowNet& net, int rank, std::int64_t pass) {
  net->forward(input_of(rank, pass), rank == 0).square().sum().backward();
}

/// A window of passes; `batches` has the number of batches of each rank.
void train_window(const Group& world, ShardedModel& sharded, FollowNet& net, const std::vector<int>& batches,
                  bool sync_each) {
  const int own = batches[static_cast<std::size_t>(world.rank())];
  const int passes = *std::max_element(batches.begin(), batches.end());
  for (int pass = 0; pass < passes; ++pass) {
    const bool follows = std::any_of(batches.begin(), batches.end(), [pass](int count) { return count <= pass; });
    sharded.set_requires_gradient_sync(sync_each || pass + 1 == passes);
    if (pass < own) {
      sharded.set_announcer(
          follows
              ? [&world](char kind, std::size_t unit) { world.all_gather(std::string(1, kind) + std::to_string(unit)); }
              : ShardedModel::Announcer());
      {
        const ShardedModel::Step step(sharded);
        backward_of(net, world.rank(), pass);
      }
      sharded.set_announcer({});
      if (follows) {
        world.all_gather(std::string("end"));
      }
      continue;
    }
    for (;;) {
      std::set<std::string> heard;
      for (const std::string& text : world.all_gather(std::string())) {
        heard.insert(text);
      }
      heard.erase("");
      expect(heard.size() == 1, "the same collective of all ranks that have a batch");
      if (*heard.begin() == "end") {
        break;
      }
      sharded.join_collective(heard.begin()->front(), static_cast<std::size_t>(std::stoul(heard.begin()->substr(1))));
    }
  }
  sharded.finish_backward();
}

/// Two windows, between which rows change. `context` has the axes replicate and shard.
std::string follow(const Group& world, const danling::ParallelContext& context, ShardOptions options,
                   const std::vector<int>& batches, bool sync_each) {
  const int replicas = context.group("replicate").size();
  options.replicas = context.group("replicate");
  torch::manual_seed(3);
  FollowNet whole, net;
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t at = 0; at < whole->parameters().size(); ++at) {
      net->parameters()[at].copy_(whole->parameters()[at]);
    }
  }
  ShardedModel sharded(net.ptr(), context.group("shard"), options);
  const auto reference = whole->named_parameters();
  for (int window = 0; window < 2; ++window) {
    train_window(world, sharded, net, batches, sync_each);
    for (int rank = 0; rank < world.size(); ++rank) {
      for (int pass = 0; pass < batches[static_cast<std::size_t>(rank)]; ++pass) {
        backward_of(whole, rank, pass);
      }
    }
    const torch::NoGradGuard no_grad;
    for (auto& [name, rows] : sharded.named_parameters()) {
      const Tensor& parameter = reference[name];
      const auto [begin, length] = sharded.row_range(parameter.size(0));
      expect(parameter.grad().defined() == rows.grad().defined(), concat("a gradient or none of ", name));
      if (rows.grad().defined()) {
        const Tensor expected = parameter.grad().narrow(0, begin, length);
        expect(torch::allclose(rows.grad(), expected, 1e-9, 1e-12),
               concat("the gradient of ", name, " in window ", window, ", stage ", options.stage, ", shared memory ",
                      options.shared_memory, ", units ", options.units.size(), ", replicas ", replicas, ", sync ",
                      sync_each));
        rows.sub_(rows.grad(), 0.01);
      }
    }
    for (const auto& item : reference) {
      if (item.value().grad().defined()) {
        Tensor value = item.value();
        value.sub_(value.grad(), 0.01);
        value.mutable_grad().reset();
      }
    }
    sharded.zero_grad();
    sharded.update_parameters();
  }
  return "equal";
}

TEST_CASE("ShardedModel: ranks without a batch follow, in every layout of replicas and stage", "[parallel]") {
  const std::vector<std::vector<int>> cases = {
      {1, 1, 0, 0},  // a replica whose ranks all have none
      {1, 0, 1, 0}, {0, 1, 1, 1}, {2, 1, 1, 2}, {3, 2, 1, 0},
  };
  check_ranks(
      run_ranks(4,
                [&](const Group& world) {
                  const PoisonedMemory poisoned;
                  // Units and the time of the sum alternate, so that each of their four combinations meets each
                  // pair of the other choices.
                  std::size_t turn = 0;
                  for (const int replicas : {1, 2, 4}) {
                    const danling::ParallelContext context(
                        danling::ParallelTopology(4, world.rank(), {{"replicate", replicas}, {"shard", 4 / replicas}}),
                        world);
                    for (const auto& batches : cases) {
                      for (const bool shared_memory : {true, false}) {
                        for (const int stage : {1, 2, 3}) {
                          ShardOptions options{.stage = stage, .shared_memory = shared_memory};
                          options.units = turn % 2 == 0 ? std::vector<std::string>{"Linear"} : options.units;
                          follow(world, context, options, batches, turn / 2 % 2 == 0);
                          ++turn;
                        }
                      }
                      ++turn;
                    }
                  }
                  return std::string("equal");
                }),
      "equal");
}

}  // namespace
}  // namespace sharded_follow_test
