// Types, places and stages of sharded parameters.
#include <torch/nn.h>

#include <danling/core/error.hpp>
#include <danling/optim/sgd.hpp>
#include <danling/parallel/sharded_model.hpp>
#include <danling/parallel/slices.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace sharded_precision_test {
namespace {

using danling::ConfigError;
using danling::Group;
using danling::ShardedModel;
using danling::ShardOptions;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;
using torch::Tensor;

torch::nn::Sequential make_small_net() {
  torch::manual_seed(2);
  return torch::nn::Sequential(torch::nn::Linear(6, 5), torch::nn::LayerNorm(torch::nn::LayerNormOptions({5})),
                               torch::nn::Tanh(), torch::nn::Linear(5, 3));
}

Tensor batch_of(int rank) {
  torch::manual_seed(40 + rank);
  return torch::randn({8, 6});
}

TEST_CASE("ShardedModel: operators compute in param_dtype, and rows keep theirs", "[parallel]") {
  for (const int ranks : {1, 2}) {
    for (const bool shared : {true, false}) {
      check_ranks(
          run_ranks(ranks,
                    [&](const Group& group) {
                      auto net = make_small_net(), half = make_small_net();
                      for (const auto& module : half->modules(false)) {
                        for (auto& entry : module->named_parameters(false)) {
                          entry.value().set_data(entry.value().detach().to(torch::kBFloat16));
                        }
                      }
                      ShardedModel sharded(net.ptr(), group,
                                           {.units = {"Linear"},
                                            .mixed_precision = {.param_dtype = torch::kBFloat16,
                                                                .reduce_dtype = torch::kFloat,
                                                                .output_dtype = torch::kFloat},
                                            .shared_memory = shared});
                      const Tensor x = batch_of(group.rank());
                      {
                        const ShardedModel::Step scope(sharded);
                        const Tensor mine = net->forward(x), theirs = half->forward(x.to(torch::kBFloat16));
                        expect(mine.scalar_type() == torch::kBFloat16 && mine.equal(theirs), "the output in bfloat16");
                        expect(sharded.cast_outputs(mine).scalar_type() == torch::kFloat, "the output in float32");
                        mine.square().sum().backward();
                        theirs.square().sum().backward();
                      }
                      sharded.finish_backward();
                      const auto expected = half->named_parameters();
                      for (const auto& [name, rows] : sharded.named_parameters()) {
                        Tensor sum = expected[name].grad().to(torch::kFloat);
                        group.all_reduce(sum);
                        const auto [begin, count] = sharded.row_range(sum.size(0));
                        expect(rows.scalar_type() == torch::kFloat && rows.grad().scalar_type() == torch::kFloat,
                               "rows in float32");
                        expect(rows.grad().allclose(sum.narrow(0, begin, count), 1e-6, 1e-6),
                               "the gradient of " + name);
                      }
                      const ShardedModel::FullParameters scope(sharded, true);
                      const auto fresh = make_small_net()->named_parameters();
                      for (const auto& parameter : net->named_parameters()) {
                        expect(parameter.value().equal(fresh[parameter.key()]), "all bits of " + parameter.key());
                      }
                      return std::string("equal");
                    }),
          "equal");
    }
  }
}

TEST_CASE("ShardedModel: gradients travel in reduce_dtype, and are added in float32", "[parallel]") {
  for (const bool shared : {true, false}) {
    check_ranks(run_ranks(2,
                          [&](const Group& group) {
                            auto net = make_small_net(), whole = make_small_net();
                            ShardedModel sharded(
                                net.ptr(), group,
                                {.mixed_precision = {.reduce_dtype = torch::kBFloat16}, .shared_memory = shared});
                            const Tensor x = batch_of(group.rank());
                            {
                              const ShardedModel::Step scope(sharded);
                              net->forward(x).square().sum().backward();
                            }
                            sharded.finish_backward();
                            whole->forward(x).square().sum().backward();
                            const auto expected = whole->named_parameters();
                            for (const auto& [name, rows] : sharded.named_parameters()) {
                              Tensor sum = expected[name].grad().to(torch::kBFloat16).to(torch::kFloat);
                              group.all_reduce(sum);
                              const auto [begin, count] = sharded.row_range(sum.size(0));
                              expect(rows.grad().equal(sum.narrow(0, begin, count)), "the gradient of " + name);
                            }
                            return std::string("equal");
                          }),
                "equal");
  }
}

TEST_CASE("ShardedModel: parameters of stage 1 and 2 are plain and up to date after each update", "[parallel]") {
  for (const int stage : {1, 2}) {
    for (const bool shared : {true, false}) {
      check_ranks(
          run_ranks(
              3,
              [&](const Group& group) {
                auto net = make_small_net(), whole = make_small_net();
                ShardedModel sharded(net.ptr(), group, {.units = {"Linear"}, .stage = stage, .shared_memory = shared});
                std::vector<Tensor> rows;
                for (const auto& [name, tensor] : sharded.named_parameters()) {
                  rows.push_back(tensor);
                }
                expect(ShardedModel::to_local(net->parameters()[0]).is_same(sharded.rows_of(net->parameters()[0])),
                       "the rows of a parameter");
                danling::optim::SGD ours(rows, {.lr = 0.1, .momentum = 0.9});
                danling::optim::SGD theirs(whole->parameters(), {.lr = 0.1, .momentum = 0.9});
                for (int step = 0; step < 4; ++step) {
                  const Tensor x = batch_of(10 * step + group.rank());
                  {
                    const ShardedModel::Step scope(sharded);
                    net->forward(x).square().mean().backward();
                  }
                  sharded.finish_backward();
                  ours.step();
                  sharded.zero_grad();
                  const auto early = error_of<danling::StateError>([&] { ShardedModel::Step scope(sharded); });
                  expect(early ==
                             "[parallel.fsdp] expected update_parameters() between an update and the next step, "
                             "which all ranks need with stage 1 and 2, got a step",
                         "a refusal of stale parameters, got " + early);
                  sharded.update_parameters();
                  whole->forward(x).square().mean().backward();
                  for (Tensor& parameter : whole->parameters()) {
                    group.all_reduce(parameter.mutable_grad());
                  }
                  theirs.step();
                  theirs.zero_grad();
                  for (std::size_t at = 0; at < rows.size(); ++at) {
                    expect(net->parameters()[at].allclose(whole->parameters()[at], 1e-5, 1e-6), "the parameters");
                  }
                }
                return std::string("equal");
              }),
          "equal");
    }
  }
}

TEST_CASE("ShardedModel: gradients that are dropped while they travel are not in the next ones", "[parallel]") {
  for (const bool shared : {true, false}) {
    check_ranks(run_ranks(2,
                          [&](const Group& group) {
                            auto net = make_small_net(), whole = make_small_net();
                            ShardedModel sharded(net.ptr(), group, {.units = {"Linear"}, .shared_memory = shared});
                            const Tensor x = batch_of(group.rank());
                            for (int pass = 0; pass < 2; ++pass) {
                              sharded.zero_grad();
                              const ShardedModel::Step scope(sharded);
                              net->forward(x).square().sum().backward();
                            }
                            sharded.finish_backward();
                            whole->forward(x).square().sum().backward();
                            const auto expected = whole->named_parameters();
                            for (const auto& [name, rows] : sharded.named_parameters()) {
                              Tensor sum = expected[name].grad();
                              group.all_reduce(sum);
                              const auto [begin, count] = sharded.row_range(sum.size(0));
                              expect(rows.grad().allclose(sum.narrow(0, begin, count)), "the gradient of " + name);
                            }
                            return std::string("equal");
                          }),
                "equal");
  }
}

TEST_CASE("ShardedModel: a slice of a parameter is sharded by its rows, and stays a slice", "[parallel]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          const torch::nn::Linear layer(4, 6);
                          danling::parallel::set_slices(layer->weight, {{"tensor", 0, 12, 6}});
                          ShardedModel sharded(layer.ptr(), group);
                          const auto slices = danling::parallel::slices_of(layer->weight);
                          expect(slices.size() == 1 && slices[0].size == 12 && slices[0].offset == 6, "the slice");
                          expect(sharded.rows_of(layer->weight).sizes() == at::IntArrayRef({3, 4}),
                                 "rows of the slice");
                          return std::string("equal");
                        }),
              "equal");
}

TEST_CASE("ShardedModel: one rank has the module's own parameters", "[parallel]") {
  auto net = make_small_net();
  const auto before = net->parameters();
  const void* memory = before[0].data_ptr();
  ShardedModel sharded(net.ptr(), Group(), {.units = {"Linear"}});
  for (const auto& [name, rows] : sharded.named_parameters()) {
    CHECK(rows.is_same(net->named_parameters()[name]));
  }
  CHECK(before[0].data_ptr() == memory);
  CHECK(sharded.transport() == "one process");
  net->forward(batch_of(0)).sum().backward();  // no step is needed
  sharded.finish_backward();
  CHECK(before[0].grad().defined());
  CHECK(sharded.traffic().gathered == 0);
}

TEST_CASE("ShardedModel: options that contradict each other are refused", "[parallel]") {
  const auto refusal = [](const ShardOptions& options) {
    return error_of<ConfigError>([&] { ShardedModel(make_small_net().ptr(), Group(), options); });
  };
  CHECK(refusal({.prefetch = -1}) == "[parallel.fsdp] expected a prefetch of 0 units or more, got -1");
  CHECK(refusal({.virtual_ranks = -1}) == "[parallel.fsdp] expected 0 virtual ranks or more, got -1");
  CHECK(refusal({.mixed_precision = {.param_dtype = torch::kLong}}) ==
        "[parallel.fsdp] expected a floating type for mixed_precision.param_dtype, got Long");
  CHECK(refusal({.stage = 2, .mixed_precision = {.param_dtype = torch::kBFloat16}}) ==
        "[parallel.fsdp] expected stage 3 with mixed_precision.param_dtype, got stage 2, whose parameters are those of "
        "the module");
  CHECK(refusal({.stage = 1, .offload = true}) ==
        "[parallel.fsdp] expected stage 3 with offload, got stage 1, whose rows are parts of the module's parameters");
}

TEST_CASE("ShardedModel: a parameter that is thawed after sharding, or frozen in stage 3, is an error", "[parallel]") {
  for (const int stage : {1, 2, 3}) {
    check_ranks(
        run_ranks(
            2,
            [&](const Group& group) {
              auto net = make_small_net();
              const Tensor thawed = net->named_parameters()["0.bias"];
              const Tensor trained = net->named_parameters()["3.bias"];
              thawed.set_requires_grad(false);
              ShardedModel sharded(net.ptr(), group, {.units = {"Linear"}, .stage = stage});
              const auto refusal = [&] {
                return error_of<danling::StateError>([&] { const ShardedModel::Step step(sharded); });
              };
              const std::string advice =
                  "; set it in the runner's constructor, or use `stack: ddp`, where it may change between updates";
              thawed.set_requires_grad(true);
              expect(refusal() ==
                         "[parallel.fsdp] expected '0.bias' to be frozen, as when the model was sharded, "
                         "got requires_grad true" +
                             advice,
                     "an error for a thawed parameter");
              thawed.set_requires_grad(false);
              {
                const ShardedModel::Step step(sharded);
              }
              if (stage == 3) {
                trained.set_requires_grad(false);
                expect(refusal() ==
                           "[parallel.fsdp] expected '3.bias' to be trained, as when the model was "
                           "sharded, got requires_grad false" +
                               advice,
                       "an error for a frozen parameter");
              }
              return std::string("refused");
            }),
        "refused");
  }
}

TEST_CASE("ShardedModel: the norm of complex gradients, and rows of parameters with gaps", "[parallel]") {
  struct Net : torch::nn::Module {
    Net() {
      torch::manual_seed(3);
      gaps = register_parameter("gaps", torch::randn({5, 8}, torch::kDouble).narrow(1, 0, 4));
      wave = register_parameter("wave", torch::randn({5, 4}, torch::kComplexDouble));
    }
    Tensor forward(const Tensor& x) {
      return torch::real(torch::matmul(wave, x.to(torch::kComplexDouble))) * gaps.sum(1);
    }
    Tensor gaps, wave;
  };
  for (const int stage : {1, 2, 3}) {
    for (const bool shared : {true, false}) {
      check_ranks(run_ranks(2,
                            [&](const Group& group) {
                              const auto net = std::make_shared<Net>(), whole = std::make_shared<Net>();
                              ShardedModel sharded(net, group, {.units = {}, .stage = stage, .shared_memory = shared});
                              std::vector<Tensor> rows;
                              for (const auto& [name, tensor] : sharded.named_parameters()) {
                                rows.push_back(tensor);
                              }
                              danling::optim::SGD ours(rows, {.lr = 0.1}), theirs(whole->parameters(), {.lr = 0.1});
                              for (int update = 0; update < 3; ++update) {
                                const Tensor x =
                                    torch::ones({4}, torch::kDouble) * (update + 1);  // the same on both ranks
                                {
                                  const ShardedModel::Step step(sharded);
                                  net->forward(x).square().sum().backward();
                                }
                                sharded.finish_backward();
                                (whole->forward(x).square().sum() * 2).backward();
                                double squares = 0;
                                for (const Tensor& parameter : whole->parameters()) {
                                  squares += parameter.grad().abs().square().sum().item<double>();
                                }
                                const double norm = sharded.squared_grad_norm().item<double>();
                                expect(std::abs(norm - squares) <= 1e-12 * squares, "the squared norm");
                                ours.step();
                                theirs.step();
                                sharded.zero_grad();
                                theirs.zero_grad();
                                sharded.update_parameters();
                              }
                              const ShardedModel::FullParameters scope(sharded);
                              expect(torch::allclose(net->gaps, whole->gaps, 1e-12, 1e-12), "the parameter with gaps");
                              expect(torch::allclose(net->wave, whole->wave, 1e-12, 1e-12), "the complex parameter");
                              return std::string("equal");
                            }),
                  "equal");
    }
  }
}

}  // namespace
}  // namespace sharded_precision_test
