// Virtual ranks of sharded models: parameters with the same bits for every layout of replicas and shards.
#include <cstdio>
#include <functional>

#include <torch/nn.h>

#include <danling/core/error.hpp>
#include <danling/optim/adam.hpp>
#include <danling/optim/sgd.hpp>
#include <danling/parallel/sharded_model.hpp>
#include <danling/parallel/topology.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace sharded_bits_test {
namespace {

using danling::Group;
using danling::ShardedModel;
using danling::ShardOptions;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;
using torch::Tensor;

constexpr std::int64_t virtual_ranks = 4;

struct Layout {
  int replicas, shards;
};

std::string bits_of(const Tensor& values) {
  std::string out;
  for (const Tensor& value : values.detach().to(torch::kDouble).flatten().unbind()) {
    char text[40];
    std::snprintf(text, sizeof text, "%a ", value.item<double>());
    out += text;
  }
  return out;
}

/// Sizes that no number of ranks divides, a scalar, a frozen parameter, and one that only some shards use.
struct OddNetImpl : torch::nn::Module {
  OddNetImpl() {
    first = register_module("first", torch::nn::Linear(7, 11));
    second = register_module("second", torch::nn::Linear(11, 5));
    scale = register_parameter("scale", torch::full({}, 0.5));
    frozen = register_parameter("frozen", torch::ones({5}), false);
    sometimes = register_parameter("sometimes", torch::full({9}, 0.25));
  }
  Tensor forward(const Tensor& x, bool uses) {
    const Tensor out = second(torch::tanh(first(x))) * scale + frozen;
    return uses ? out + sometimes.narrow(0, 0, 5) : out;
  }
  torch::nn::Linear first = nullptr, second = nullptr;
  Tensor scale, frozen, sometimes;
};
TORCH_MODULE(OddNet);

/// Five updates with clipping by the norm, and the bits that they end with.
std::string train(const Group& world, const Layout& layout, bool adam, ShardOptions options) {
  Group shard, replicas;
  if (!world.alone()) {
    const danling::ParallelContext context(
        danling::ParallelTopology(world.size(), world.rank(),
                                  {{"replicate", layout.replicas}, {"shard", layout.shards}}),
        world);
    shard = context.group("shard");
    replicas = context.group("replicate");
  }
  torch::manual_seed(5);
  OddNet net;
  options.units = {"Linear"};
  options.replicas = replicas;
  options.virtual_ranks = virtual_ranks;
  ShardedModel sharded(net.ptr(), shard, options);
  std::vector<Tensor> rows;
  for (const auto& [name, tensor] : sharded.named_parameters()) {
    rows.push_back(tensor);
  }
  const danling::optim::OptimizerOptions rates{.lr = 0.05, .weight_decay = 0.01};
  const auto optimizer = adam ? std::shared_ptr<danling::optim::Optimizer>(danling::optim::adamw(rows, rates))
                              : std::shared_ptr<danling::optim::Optimizer>(
                                    danling::optim::sgd(rows, {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01}));
  const std::int64_t own = virtual_ranks / world.size();
  std::string norms;
  for (std::int64_t step = 0; step < 5; ++step) {
    for (std::int64_t at = world.rank() * own; at < (world.rank() + 1) * own; ++at) {
      const ShardedModel::Step scope(sharded);
      torch::manual_seed(100 * step + at);
      const Tensor x = torch::randn({6, 7});
      net->forward(x, at % 2 == 1 && step > 0).square().mean().div(virtual_ranks).backward();
      expect(sharded.has_missing_shards(), "a missing shard");
      sharded.end_shard();
    }
    expect(!sharded.has_missing_shards(), "all shards");
    sharded.finish_backward();
    const Tensor squares = sharded.squared_grad_norm();
    norms += bits_of(squares);
    const double factor = 0.3 / std::max(squares.sqrt().item<double>(), 0.3);
    const torch::NoGradGuard no_grad;
    for (Tensor& one : rows) {
      if (one.grad().defined()) {
        one.mutable_grad().mul_(factor);
      }
    }
    optimizer->step();
    sharded.zero_grad();
    sharded.update_parameters();
  }
  const ShardedModel::FullParameters scope(sharded);
  std::string out = norms;
  for (const Tensor& parameter : net->parameters()) {
    out += bits_of(parameter);
  }
  return out;
}

TEST_CASE("ShardedModel: with virtual ranks 1, 2 and 4 processes train the same bits", "[parallel]") {
  for (const bool adam : {true, false}) {
    const auto one = run_ranks(1, [&](const Group& group) { return train(group, {1, 1}, adam, {}); }).front();
    CHECK(one.find("error") == std::string::npos);
    CHECK(one.size() > 1000);
    const auto train_all = [&](const Group& group) {
      for (const Layout& layout : {Layout{1, 2}, Layout{2, 1}, Layout{1, 4}, Layout{2, 2}, Layout{4, 1}}) {
        for (const ShardOptions& options :
             {ShardOptions{}, ShardOptions{.shared_memory = false}, ShardOptions{.stage = 1}}) {
          if (layout.replicas * layout.shards == group.size()) {
            const std::string text = train(group, layout, adam, options);
            expect(text == one,
                   concat("the same bits in ", layout.replicas, " x ", layout.shards, ", stage ", options.stage,
                          ", shared memory ", options.shared_memory, ", got ", text.substr(0, 300)));
          }
        }
      }
      return std::string("the same bits");
    };
    for (const int size : {2, 4}) {
      check_ranks(run_ranks(size, train_all), "the same bits");
    }
  }
}

TEST_CASE("ShardedModel: the norm of sharded gradients is that of whole ones", "[parallel]") {
  check_ranks(run_ranks(3,
                        [](const Group& group) {
                          torch::manual_seed(5);
                          OddNet net, whole;
                          const torch::NoGradGuard copies;
                          for (std::size_t at = 0; at < net->parameters().size(); ++at) {
                            whole->parameters()[at].copy_(net->parameters()[at]);
                          }
                          const torch::AutoGradMode grad(true);
                          ShardedModel sharded(net.ptr(), group, {.units = {"first"}});
                          const Tensor x = torch::randn({6, 7});
                          {
                            const ShardedModel::Step scope(sharded);
                            net->forward(x, true).square().mean().backward();
                          }
                          sharded.finish_backward();
                          whole->forward(x, true).square().mean().backward();
                          double expected = 0;
                          for (const Tensor& parameter : whole->parameters()) {
                            expected += parameter.grad().defined()
                                            ? parameter.grad().to(torch::kDouble).mul(3).square().sum().item<double>()
                                            : 0;
                          }
                          const double squares = sharded.squared_grad_norm().item<double>();
                          expect(std::abs(squares - expected) < 1e-5 * expected, concat(expected, ", got ", squares));
                          return std::string("equal");
                        }),
              "equal");
}

TEST_CASE("ShardedModel: virtual ranks that no tree shares are refused", "[parallel]") {
  CHECK(error_of<danling::ConfigError>([] { ShardedModel(OddNet().ptr(), Group(), {.virtual_ranks = 3}); }) ==
        "[parallel.fsdp] expected virtual ranks that are a power of two, not below the 1 processes, and a multiple of "
        "them with replicas, got 3");
  CHECK(error_of<danling::StateError>([] { ShardedModel(OddNet().ptr(), Group()).end_shard(); }) ==
        "[parallel.fsdp] expected ShardOptions::virtual_ranks for end_shard(), got 0");
}

}  // namespace
}  // namespace sharded_bits_test
