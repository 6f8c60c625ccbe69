// Sharded modules against the same modules whole: gradients are the sums over ranks, with the same bits for two ranks.
#include <danling/parallel/sharded_model.hpp>

#include <functional>

#include <torch/nn.h>

#include <danling/core/error.hpp>
#include <danling/nn/recompute.hpp>
#include <danling/optim/adam.hpp>
#include <danling/parallel/topology.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace sharded_model_test {
namespace {

using danling::Group;
using danling::ShardedModel;
using danling::ShardOptions;
using danling::StateError;
using danling::detail::concat;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;
using torch::Tensor;

/// A module of LibTorch or of the test, and its function of a batch.
struct Case {
  std::string name;
  std::function<std::shared_ptr<torch::nn::Module>()> make;
  std::function<Tensor(torch::nn::Module& module, const Tensor& input)> forward;
  std::function<Tensor(std::int64_t seed)> input;
  std::vector<std::string> units = {};
};

Tensor randn(std::vector<std::int64_t> sizes, std::int64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(seed));
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kDouble));
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(7, 4));
    body = register_module("body", torch::nn::Linear(4, 4));
    unused = register_parameter("unused", torch::ones({3}));
    scale = register_parameter("scale", torch::ones({}));
    frozen = register_module("frozen", torch::nn::Linear(4, 4));
    for (auto& parameter : frozen->parameters()) {
      parameter.set_requires_grad(false);
    }
  }
  Tensor forward(const Tensor& tokens) {
    const Tensor hidden = frozen(torch::tanh(body(embedding(tokens.to(torch::kLong)))));
    return torch::matmul(hidden, embedding->weight.t()) * scale;
  }
  torch::nn::Embedding embedding = nullptr;
  torch::nn::Linear body = nullptr, frozen = nullptr;
  Tensor unused, scale;
};
TORCH_MODULE(Tied);

std::vector<Case> cases() {
  using namespace torch::nn;
  return {
      {"linear",
       [] { return Sequential(Linear(5, 3), Tanh(), Linear(3, 1)).ptr(); },
       [](Module& module, const Tensor& x) { return module.as<SequentialImpl>()->forward(x); },
       [](std::int64_t seed) { return randn({4, 5}, seed); },
       {"^0$", "^2$"}},
      {"linear of three dimensions",
       [] { return Sequential(Linear(5, 3), Tanh(), Linear(3, 2)).ptr(); },
       [](Module& module, const Tensor& x) { return module.as<SequentialImpl>()->forward(x); },
       [](std::int64_t seed) { return randn({4, 2, 5}, seed); },
       {"LinearImpl"}},
      {"transformer",
       [] {
         return TransformerEncoder(
                    TransformerEncoderOptions(TransformerEncoderLayerOptions(8, 2).dim_feedforward(6).dropout(0), 3))
             .ptr();
       },
       [](Module& module, const Tensor& x) { return module.as<TransformerEncoderImpl>()->forward(x); },
       [](std::int64_t seed) { return randn({5, 2, 8}, seed); },
       {"TransformerEncoderLayer"}},
      {"recurrent", [] { return LSTM(LSTMOptions(4, 3).num_layers(2)).ptr(); },
       [](Module& module, const Tensor& x) { return std::get<0>(module.as<LSTMImpl>()->forward(x)); },
       [](std::int64_t seed) { return randn({5, 2, 4}, seed); }},
      {"convolutional",
       [] { return Sequential(Conv2d(2, 3, 3), BatchNorm2d(3), ReLU(), Conv2d(3, 1, 2)).ptr(); },
       [](Module& module, const Tensor& x) { return module.as<SequentialImpl>()->forward(x); },
       [](std::int64_t seed) { return randn({2, 2, 6, 6}, seed); },
       {"Conv2d"}},
      {"tied, frozen and unused parameters",
       [] { return Tied().ptr(); },
       [](Module& module, const Tensor& x) { return module.as<TiedImpl>()->forward(x); },
       [](std::int64_t seed) { return randn({3, 4}, seed).abs().mul(2).floor().clamp(0, 6); },
       {"body", "frozen"}},
  };
}

/// The backward pass of the test's loss, for the batch of `seed`.
void backward(const Tensor& out, std::int64_t seed) { (out * randn(out.sizes().vec(), seed + 100)).sum().backward(); }

std::string compare(const Case& tested, const Group& group, ShardOptions options, bool by_unit, int passes,
                    bool sync_each) {
  torch::manual_seed(3);
  const auto whole = tested.make();
  whole->to(torch::kDouble);
  torch::manual_seed(3 + group.rank());  // rank 0's values count
  const auto module = tested.make();
  module->to(torch::kDouble);
  if (by_unit) {
    options.units = tested.units;
  }
  ShardedModel sharded(module, group, options);
  for (int pass = 0; pass < passes; ++pass) {
    const ShardedModel::Step step(sharded);
    sharded.set_requires_gradient_sync(sync_each || pass + 1 == passes);
    const std::int64_t seed = 10 * pass + group.rank();
    const Tensor mine = tested.forward(*module, tested.input(seed));
    const Tensor theirs = tested.forward(*whole, tested.input(seed));
    expect(mine.equal(theirs),
           concat("the output of the whole module in pass ", pass, ", stage ", options.stage, ", shared memory ",
                  options.shared_memory, ", prefetch ", options.prefetch, ", offload ", options.offload));
    backward(mine, seed);
    backward(theirs, seed);
  }
  sharded.finish_backward();
  std::size_t count = 0;
  const auto reference = whole->named_parameters();
  for (const auto& [name, of_rank] : sharded.named_parameters()) {
    Tensor rows = of_rank;
    if (rows.dim() == 0) {  // of the only rank: the parameter itself
      rows = of_rank.detach().view({1});
      rows.mutable_grad() = of_rank.grad().defined() ? of_rank.grad().view({1}) : Tensor();
    }
    const Tensor& parameter = reference[name];
    const std::int64_t all = parameter.dim() == 0 ? 1 : parameter.size(0);
    const auto [begin, length] = sharded.row_range(all);
    expect(rows.size(0) == length, "as many rows as the range has");
    const auto part = [&, begin = begin, length = length](const Tensor& of) {
      return (of.dim() == 0 ? of.view({1}) : of).narrow(0, begin, length);
    };
    expect(rows.equal(part(parameter)), concat("the rows of ", name));
    Tensor sum = parameter.grad().defined() ? parameter.grad().clone() : Tensor();
    expect(sum.defined() == rows.grad().defined(), concat("a gradient or none of ", name));
    if (sum.defined()) {
      group.all_reduce(sum);
      expect(torch::allclose(rows.grad(), part(sum), 1e-12, 1e-12), concat("the gradient of ", name));
    }
    ++count;
  }
  expect(count == reference.size(), "all parameters");
  return "equal";
}

std::vector<ShardOptions> option_cases() {
  return {
      {.shared_memory = false},
      {.reshard_after_forward = false, .prefetch = 0, .shared_memory = false},
      {.prefetch = 2, .offload = true, .shared_memory = false},
      {.offload = true},
      {.stage = 2},
      {.stage = 2, .shared_memory = false},
      {.stage = 1},
      {.stage = 1, .shared_memory = false},
  };
}

TEST_CASE("ShardedModel: outputs and summed gradients are those of whole modules", "[parallel]") {
  const auto compare_all = [](const Group& group) {
    std::size_t turn = 0;
    for (const Case& tested : cases()) {
      try {
        for (const bool reshard : {true, false}) {
          const ShardOptions options{.reshard_after_forward = reshard};
          compare(tested, group, options, true, 1, true);
          compare(tested, group, options, reshard, 3, true);
          compare(tested, group, options, !reshard, 3, false);
        }
        for (const ShardOptions& options : option_cases()) {  // summed each time or once, in turn
          const bool each = turn++ % 2 == 0;
          compare(tested, group, options, true, each ? 3 : 2, each);
        }
        ++turn;
      } catch (const std::exception& error) {
        throw std::runtime_error(concat(tested.name, ": ", error.what()));
      }
    }
    return std::string("equal");
  };
  for (const int ranks : {1, 2, 3}) {
    INFO(ranks << " ranks");
    check_ranks(run_ranks(ranks, compare_all), "equal");
  }
}

std::shared_ptr<torch::nn::SequentialImpl> make_net() {
  using namespace torch::nn;
  torch::manual_seed(1);
  Sequential net(Linear(6, 5), Tanh(), Linear(5, 3), Tanh(), Linear(3, 1));
  net->to(torch::kDouble);
  return net.ptr();
}

TEST_CASE("ShardedModel: training on rows gives the parameters of training on whole ones", "[parallel]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          const auto net = make_net(), whole = make_net();
                          ShardedModel sharded(net, group, {.units = {"Linear"}});
                          std::vector<Tensor> rows;
                          for (const auto& [name, tensor] : sharded.named_parameters()) {
                            rows.push_back(tensor);
                          }
                          danling::optim::AdamW ours(rows, {.lr = 0.1});
                          danling::optim::AdamW theirs(whole->parameters(), {.lr = 0.1});
                          for (int step = 0; step < 5; ++step) {
                            {
                              const ShardedModel::Step scope(sharded);
                              net->forward(randn({4, 6}, step * 2 + group.rank())).square().sum().backward();
                            }
                            sharded.finish_backward();
                            ours.step();
                            sharded.zero_grad();
                            theirs.zero_grad();
                            whole->forward(randn({4, 6}, step * 2 + group.rank())).square().sum().backward();
                            for (Tensor& parameter : whole->parameters()) {
                              group.all_reduce(parameter.mutable_grad());
                            }
                            theirs.step();
                          }
                          const ShardedModel::FullParameters scope(sharded);
                          const auto expected = whole->parameters();
                          std::size_t at = 0;
                          for (const Tensor& parameter : net->parameters()) {
                            expect(torch::allclose(parameter, expected[at++], 1e-10, 1e-12), "the parameters");
                          }
                          return std::string("equal");
                        }),
              "equal");
}

TEST_CASE("ShardedModel: rows that several groups have get the gradients of all", "[parallel]") {
  check_ranks(run_ranks(4,
                        [](const Group& world) {
                          const danling::ParallelContext context(
                              danling::ParallelTopology(4, world.rank(), {{"replicate", 2}, {"shard", 2}}), world);
                          const auto net = make_net(), whole = make_net();
                          if (world.rank() > 0) {  // rank 0's values count
                            const torch::NoGradGuard no_grad;
                            net->parameters()[0].zero_();
                          }
                          ShardedModel sharded(net, context.group("shard"),
                                               {.units = {"^2$"}, .replicas = context.group("replicate")});
                          {
                            const ShardedModel::Step step(sharded);
                            net->forward(randn({4, 6}, world.rank())).square().sum().backward();
                          }
                          sharded.finish_backward();
                          whole->forward(randn({4, 6}, world.rank())).square().sum().backward();
                          const auto expected = whole->named_parameters();
                          for (const auto& [name, rows] : sharded.named_parameters()) {
                            Tensor sum = expected[name].grad();
                            world.all_reduce(sum);
                            const auto [begin, count] = sharded.row_range(sum.size(0));
                            expect(torch::allclose(rows.grad(), sum.narrow(0, begin, count), 1e-12, 1e-12), name);
                          }
                          return std::string("equal");
                        }),
              "equal");
}

TEST_CASE("ShardedModel: activations that are recomputed give the same gradients", "[parallel]") {
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          const auto net = make_net(), whole = make_net();
                          ShardedModel sharded(net, group, {.units = {"^0$", "^2$", "^4$"}});
                          const auto loss = [](torch::nn::SequentialImpl& module, const Tensor& x, bool recomputes) {
                            const auto modules = module.modules(false);
                            const auto part = [modules](const Tensor& input) {
                              return modules[2]->as<torch::nn::LinearImpl>()->forward(
                                  torch::tanh(modules[0]->as<torch::nn::LinearImpl>()->forward(input)));
                            };
                            const Tensor hidden = recomputes ? danling::nn::recompute(part, x) : part(x);
                            return modules[4]->as<torch::nn::LinearImpl>()->forward(hidden).square().sum();
                          };
                          {
                            const ShardedModel::Step step(sharded);
                            loss(*net, randn({4, 6}, group.rank()), true).backward();
                          }
                          sharded.finish_backward();
                          loss(*whole, randn({4, 6}, group.rank()), false).backward();
                          const auto expected = whole->named_parameters();
                          for (const auto& [name, rows] : sharded.named_parameters()) {
                            Tensor sum = expected[name].grad();
                            group.all_reduce(sum);
                            const auto [begin, count] = sharded.row_range(sum.size(0));
                            expect(torch::allclose(rows.grad(), sum.narrow(0, begin, count), 1e-12, 1e-12), name);
                          }
                          return std::string("equal");
                        }),
              "equal");
}

TEST_CASE("ShardedModel::FullParameters: parameters are read and written in it, and rows keep what was written",
          "[parallel]") {
  check_ranks(
      run_ranks(3,
                [](const Group& group) {
                  const auto net = make_net(), expected = make_net();
                  ShardedModel sharded(net, group, {.units = {"^0$"}});
                  const Tensor weight = net->named_parameters()["0.weight"];
                  expect(weight.sizes() == at::IntArrayRef({5, 6}) && weight.dtype() == torch::kDouble, "sizes, dtype");
                  {
                    const ShardedModel::FullParameters scope(sharded);
                    expect(weight.equal(expected->named_parameters()["0.weight"]), "the values");
                    expect(weight.data_ptr() != nullptr && weight.requires_grad() && weight.is_leaf(), "a plain leaf");
                    const torch::NoGradGuard no_grad;
                    weight.mul_(2);
                  }
                  {
                    const ShardedModel::FullParameters scope(sharded, true);
                    expect(weight.equal(expected->named_parameters()["0.weight"]), "what was written without `writes`");
                    const torch::NoGradGuard no_grad;
                    weight.mul_(2);
                  }
                  const auto [begin, count] = sharded.row_range(5);
                  expect(sharded.rows_of(weight).equal(
                             (expected->named_parameters()["0.weight"] * 2).narrow(0, begin, count)),
                         "the rows");
                  const ShardedModel::FullParameters scope(sharded);
                  expect(weight.equal(expected->named_parameters()["0.weight"] * 2), "what was written");
                  return std::string("equal");
                }),
      "equal");
}

std::string words(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("ShardedModel: code that touches a parameter outside of a step learns how", "[parallel]") {
  const auto texts = run_ranks(2, [](const Group& group) {
    const auto net = make_net();
    ShardedModel sharded(net, group, {.units = {"^0$"}});
    const Tensor weight = net->named_parameters()["0.weight"];
    // Sizes are known.
    expect(torch::zeros_like(weight).equal(torch::zeros({5, 6}, torch::kDouble)), "zeros_like");
    expect(weight.numel() == 30 && weight.requires_grad() && weight.is_leaf(), "its properties");
    std::string out = words([&] { weight.sum(); }) + "\n";
    out += words([&] {
             const torch::NoGradGuard no_grad;
             weight.mul_(2);
           }) +
           "\n";
    out += words([&] { weight.data_ptr<double>(); }) + "\n";
    out += words([&] { net->forward(randn({1, 6}, 1)); }) + "\n";
    Tensor kept;
    {
      const ShardedModel::Step step(sharded);
      out += words([&] {
               const torch::NoGradGuard no_grad;
               weight.add_(1);
             }) +
             "\n";
      kept = weight.detach();
      out += words([&] { const ShardedModel::FullParameters scope(sharded); }) + "\n";
    }
    out += words([&] { kept.sum(); }) + "\n";
    {
      const ShardedModel::FullParameters scope(sharded);
      out += words([&] { const ShardedModel::FullParameters again(sharded); }) + "\n";
    }
    out += words([&] { ShardedModel again(net, Group(), {}); }) + "\n";
    out += words([&] { sharded.rows_of(torch::ones({2})); }) + "\n";
    return out;
  });
  check_ranks(
      texts,
      "[parallel.fsdp] expected parameters to be used in a step, got aten::sum of '0.weight', of which each of "
      "2 ranks has some rows; read or write it inside of a dl::ShardedModel::FullParameters (in a run: "
      "runner.gather_parameters()), on all ranks\n"
      "[parallel.fsdp] expected parameters to be used in a step, got aten::mul_ of '0.weight', of which each of "
      "2 ranks has some rows; read or write it inside of a dl::ShardedModel::FullParameters (in a run: "
      "runner.gather_parameters()), on all ranks\n"
      "[parallel.fsdp] expected memory that this rank has, got that of the sharded parameter '0.weight'; read "
      "it inside of a dl::ShardedModel::FullParameters (in a run: runner.gather_parameters())\n"
      "[parallel.fsdp] expected parameters to be used in a step, got aten::addmm of '0.bias', of which each of "
      "2 ranks has some rows; read or write it inside of a dl::ShardedModel::FullParameters (in a run: "
      "runner.gather_parameters()), on all ranks\n"
      "[parallel.fsdp] expected parameters that do not change in a step, got aten::add_ of '0.weight'; write to "
      "it inside of a dl::ShardedModel::FullParameters(model, true)\n"
      "[parallel.fsdp] expected dl::ShardedModel::FullParameters outside of steps, got one inside of a step\n"
      "[parallel.fsdp] expected parameters to be used in a step, got aten::sum of '0.weight', of which each of "
      "2 ranks has some rows; read or write it inside of a dl::ShardedModel::FullParameters (in a run: "
      "runner.gather_parameters()), on all ranks\n"
      "[parallel.fsdp] expected dl::ShardedModel::FullParameters outside of steps, got one inside of another\n"
      "[parallel.fsdp] expected parameters of no other ShardedModel, got '0.weight'\n"
      "[parallel.fsdp] expected a parameter of the sharded module, got a tensor of [2]\n");
}

TEST_CASE("ShardedModel: what cannot be sharded is refused before anything changes", "[parallel]") {
  const auto net = make_net();
  CHECK(error_of<danling::ConfigError>([&] { ShardedModel(net, Group(), {.units = {"layers"}}); }) ==
        "[parallel.fsdp] expected a pattern found in a module's name or type, got 'layers'");
  CHECK(error_of<danling::ConfigError>([&] {
          ShardedModel(net, Group(), {.units = {"("}});
        }).find("[parallel.fsdp] expected regular expressions for units, got '(': ") == 0);
  struct Shared : torch::nn::Module {
    Shared() {
      a = register_parameter("a", torch::ones({4}));
      b = register_parameter("b", a.detach().narrow(0, 0, 2));
    }
    Tensor a, b;
  };
  CHECK(
      error_of<StateError>([&] { ShardedModel(std::make_shared<Shared>(), Group(), {}); }) ==
      "[parallel.fsdp] expected parameters that share no memory, got 'b' in the memory of 'a'; register one parameter "
      "in both places");
  CHECK(net->forward(randn({1, 6}, 1)).defined());
  check_ranks(run_ranks(2,
                        [](const Group& group) {
                          const torch::nn::Linear other(group.rank() + 1, 2);
                          return error_of<danling::DistributedError>([&] { ShardedModel(other.ptr(), group, {}); });
                        }),
              "[parallel.fsdp] expected the same parameters on all ranks, got others on rank 1");
}

}  // namespace
}  // namespace sharded_model_test
