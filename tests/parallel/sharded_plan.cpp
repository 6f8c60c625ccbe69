// Plans of sharded training against the bytes that real ranks allocate and send.
#include <danling/parallel/sharded_plan.hpp>

#include <algorithm>
#include <limits>

#include <torch/nn.h>

#include <danling/core/error.hpp>
#include <danling/optim/adam.hpp>

#include <support/counting_allocator.hpp>
#include <support/error.hpp>
#include <support/ranks.hpp>

namespace sharded_plan_test {
namespace {

using danling::Group;
using danling::ShardedModel;
using danling::ShardOptions;
using danling::ShardPlan;
using danling::ShardPlanOptions;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::CountingAllocator;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;
using torch::Tensor;

/// Seven equal units, whose activations are small beside them.
torch::nn::Sequential make_deep_net(std::int64_t width) {
  torch::nn::Sequential net;
  for (int layer = 0; layer < 7; ++layer) {
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::Tanh());
  }
  return net;
}

struct PlanCase {
  std::string name;
  ShardOptions options;
  ShardPlanOptions plan = {};
};

std::vector<PlanCase> plan_cases() {
  std::vector<PlanCase> out = {
      {"stage 3", {}},
      {"no reshard", {.reshard_after_forward = false}},
      {"no prefetch", {.prefetch = 0}},
      {"prefetch of 2", {.prefetch = 2}},
      {"stage 2", {.stage = 2}},
      {"stage 1", {.stage = 1}},
      {"two batches of a window", {}, {.micro_batches = 2}},
      {"two batches that sum once", {}, {.micro_batches = 2, .reduces_each = false}},
      {"bfloat16", {.mixed_precision = {.param_dtype = torch::kBFloat16, .reduce_dtype = torch::kFloat}}},
  };
  for (PlanCase& one : out) {
    one.options.units = {"Linear"};
    one.options.shared_memory = false;
  }
  return out;
}

std::string close_to(const char* what, std::int64_t planned, std::int64_t measured) {
  const double apart = std::abs(static_cast<double>(measured - planned));
  return apart <= 0.05 * static_cast<double>(planned) ? ""
                                                      : concat(what, ": planned ", planned, ", got ", measured, "; ");
}

std::string measure(const PlanCase& tested, const Group& group) {
  constexpr std::int64_t width = 256;
  static CountingAllocator& bytes = CountingAllocator::install();  // once in each process
  torch::nn::Sequential net = make_deep_net(width);
  const ShardPlan plan = danling::plan_shards(*net, group.size(), tested.options, tested.plan);
  ShardedModel sharded(net.ptr(), group, tested.options);
  std::vector<Tensor> rows;
  for (const auto& [name, tensor] : sharded.named_parameters()) {
    rows.push_back(tensor);
  }
  danling::optim::AdamW optimizer(rows, {.lr = 0.01});
  const Tensor x = torch::ones({1, width});
  ShardedModel::Traffic before;
  std::int64_t peak = std::numeric_limits<std::int64_t>::max();  // the least: a busy machine frees late
  for (int window = 0; window < 13; ++window) {
    bytes.peak = bytes.live;
    before = sharded.traffic();
    for (std::int64_t batch = 0; batch < tested.plan.micro_batches; ++batch) {
      const ShardedModel::Step scope(sharded);
      sharded.set_requires_gradient_sync(tested.plan.reduces_each || batch + 1 == tested.plan.micro_batches);
      net->forward(x).to(torch::kFloat).sum().backward();
    }
    sharded.finish_backward();
    optimizer.step();
    sharded.zero_grad();
    sharded.update_parameters();
    peak = window > 0 ? std::min(peak, bytes.peak) : peak;  // the first makes the optimizer's state
  }
  const ShardedModel::Traffic sent = sharded.traffic();
  const std::string out = close_to("peak", plan.peak, peak) +
                          close_to("gathered", plan.gathered, sent.gathered - before.gathered) +
                          close_to("reduced", plan.reduced, sent.reduced - before.reduced);
  return out.empty() || group.rank() > 0 ? "as planned" : out;
}

TEST_CASE("plan_shards: memory and traffic are those of 1, 2 and 4 ranks", "[parallel]") {
  for (const int ranks : {1, 2, 4}) {
    INFO(ranks << " ranks");
    check_ranks(run_ranks(ranks,
                          [](const Group& group) {
                            for (const PlanCase& tested : plan_cases()) {
                              const std::string text = measure(tested, group);
                              danling_test::expect(text == "as planned", tested.name + ": " + text);
                              group.barrier();
                            }
                            return std::string("as planned");
                          }),
                "as planned");
  }
}

TEST_CASE("plan_shards: 1,024 ranks need what the design says", "[parallel]") {
  torch::nn::Sequential net = make_deep_net(2048);
  std::int64_t values = 0;
  for (const Tensor& parameter : net->parameters()) {
    values += parameter.numel();
  }
  const auto all = static_cast<double>(4 * values);
  for (const std::int64_t ranks : {1, 2, 4, 64, 1024}) {
    INFO(ranks << " ranks");
    const auto n = static_cast<double>(ranks);
    const auto is = [](std::int64_t bytes, double expected) {
      return std::abs(static_cast<double>(bytes) - expected) <= 0.05 * expected;
    };
    const ShardPlan three = danling::plan_shards(*net, ranks, {.units = {"Linear"}, .shared_memory = false});
    CHECK(is(three.parameters, all / n));
    CHECK(is(three.optimizer, 2 * all / n));
    CHECK(is(three.gradients, all / n));
    // The last unit of the forward pass is the first of the backward pass, and gathered once.
    CHECK(is(three.gathered, (2 - 1.0 / 7) * all * (n - 1) / n));
    CHECK(is(three.reduced, all * (n - 1) / n));
    const ShardPlan one = danling::plan_shards(*net, ranks, {.units = {"Linear"}, .stage = 1, .shared_memory = false});
    CHECK(is(one.parameters, all));
    CHECK(is(one.optimizer, 2 * all / n));
    CHECK(is(one.gathered + one.reduced, 2 * all * (n - 1) / n));
    const ShardPlan replicated =
        danling::plan_shards(*net, ranks, {.units = {"Linear"}, .shared_memory = false}, {.replicas = 4});
    CHECK(is(replicated.reduced - three.reduced, 2 * all / n * 3 / 4));
  }
  const ShardPlan plan = danling::plan_shards(*net, 1024, {.units = {"Linear"}, .shared_memory = false});
  CHECK(plan.text().find("each of 1024 ranks: parameters 112.1 KiB, ") == 0);  // 7 x (2 x 2048 + 2) values
  CHECK(net->parameters()[0].is_cpu());
  CHECK(net->forward(torch::ones({1, 2048})).numel() == 2048);
}

TEST_CASE("plan_shards: what it cannot plan is refused", "[parallel]") {
  torch::nn::Sequential net = make_deep_net(4);
  CHECK(error_of<danling::ConfigError>([&] { danling::plan_shards(*net, 0); }) ==
        "[parallel.plan_shards] expected 1 or more ranks, replicas and micro-batches, got 0, 1 and 1");
  CHECK(error_of<danling::ConfigError>([&] { danling::plan_shards(*net, 2, {.virtual_ranks = 2}); }) ==
        "[parallel.plan_shards] expected options without a group of replicas and virtual ranks; "
        "ShardPlanOptions::replicas is their number");
  CHECK(error_of<danling::ConfigError>([&] { danling::plan_shards(*net, 2, {.stage = 4}); }) ==
        "[parallel.fsdp] expected stage 1, 2 or 3, got 4");
}

}  // namespace
}  // namespace sharded_plan_test
