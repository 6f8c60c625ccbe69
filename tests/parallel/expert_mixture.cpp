// MixtureOfExperts against loops over tokens, and several ranks against one process.
#include <cmath>
#include <limits>
#include <mutex>

#include <ATen/autocast_mode.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>

#include <danling/core/error.hpp>
#include <danling/parallel/mixture_of_experts.hpp>
#include <danling/parallel/slices.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace expert_mixture_test {
namespace {

using danling::ConfigError;
using danling::DataError;
using danling::Group;
using danling::ParallelContext;
using danling::ParallelTopology;
using danling::StateError;
using danling::detail::concat;
using danling::parallel::ExpertActivation;
using danling::parallel::MixtureOfExperts;
using danling::parallel::MixtureOfExpertsImpl;
using danling::parallel::MixtureOfExpertsOptions;
using danling_test::error_of;
using danling_test::expect;
using torch::Tensor;

Tensor draw(std::vector<std::int64_t> sizes, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kDouble));
}

MixtureOfExperts make(const MixtureOfExpertsOptions& options) {
  static std::mutex seeding;
  const std::lock_guard lock(seeding);
  torch::manual_seed(11);
  MixtureOfExperts out(options);
  out->to(torch::kDouble);
  return out;
}

/// Token by token, as in the papers.
struct Expected {
  Tensor output, auxiliary_loss;
  std::int64_t dropped = 0;
};

Expected loop(const MixtureOfExpertsOptions& options, const MixtureOfExpertsImpl& module, const Tensor& input) {
  const std::int64_t tokens = input.size(0), experts = options.num_experts;
  const auto places = static_cast<std::int64_t>(
      std::ceil(options.capacity_factor * static_cast<double>(tokens * options.top_k) / static_cast<double>(experts)));
  std::vector<std::int64_t> taken(static_cast<std::size_t>(experts));
  std::vector<Tensor> outputs(static_cast<std::size_t>(tokens), torch::zeros({options.dim}, torch::kDouble));
  const Tensor logits = torch::matmul(input, module.router->weight.t());
  const Tensor probabilities = logits.softmax(1);
  const auto [sorted, order] = probabilities.detach().sort(1, /*descending=*/true);
  Tensor shares = torch::zeros({experts}, torch::kDouble);
  Expected out;
  for (std::int64_t choice = 0; choice < options.top_k; ++choice) {
    for (std::int64_t token = 0; token < tokens; ++token) {
      const auto expert = order[token][choice].item<std::int64_t>();
      shares[expert] += 1.0 / static_cast<double>(tokens * options.top_k);
      if (taken[static_cast<std::size_t>(expert)]++ >= places) {
        ++out.dropped;
        continue;
      }
      const Tensor row = input[token];
      const auto bias = [&](const Tensor& all) {
        return all.defined() ? all[expert] : torch::zeros({1}, torch::kDouble);
      };
      Tensor hidden = torch::matmul(row, module.up_weight[expert]) + bias(module.up_bias);
      hidden = options.activation == ExpertActivation::swiglu
                   ? torch::silu(torch::matmul(row, module.gate_weight[expert]) + bias(module.gate_bias)) * hidden
                   : torch::gelu(hidden);
      Tensor gate = probabilities[token][expert];
      if (options.top_k > 1) {
        gate = gate / probabilities[token].index_select(0, order[token].slice(0, 0, options.top_k)).sum();
      }
      outputs[static_cast<std::size_t>(token)] =
          outputs[static_cast<std::size_t>(token)] +
          gate * (torch::matmul(hidden, module.down_weight[expert]) + bias(module.down_bias));
    }
  }
  out.output = torch::stack(outputs);
  out.auxiliary_loss = options.balance_weight * static_cast<double>(experts) * (shares * probabilities.mean(0)).sum() +
                       options.router_z_weight * logits.exp().sum(1).log().pow(2).mean();
  return out;
}

const std::vector<MixtureOfExpertsOptions>& cases() {
  static const std::vector<MixtureOfExpertsOptions> all = {
      {.dim = 6,
       .hidden_dim = 5,
       .num_experts = 4,
       .top_k = 2,
       .capacity_factor = 0.8,
       .balance_weight = 0.5,
       .router_z_weight = 0.25},
      {.dim = 6,
       .hidden_dim = 5,
       .num_experts = 5,
       .top_k = 1,
       .capacity_factor = 0.6,
       .activation = ExpertActivation::gelu,
       .bias = true},
      {.dim = 3, .hidden_dim = 4, .num_experts = 3, .top_k = 3, .capacity_factor = 0.5, .bias = true},
      {.dim = 6,
       .hidden_dim = 1,
       .num_experts = 2,
       .top_k = 2,
       .capacity_factor = std::numeric_limits<double>::infinity()},
  };
  return all;
}

void backward(const Tensor& output, const Tensor& auxiliary_loss) {
  ((output * draw(output.sizes().vec(), 3)).sum() + auxiliary_loss).backward();
}

TEST_CASE("MixtureOfExperts: output, losses, drops and gradients are those of loops over tokens",
          "[parallel][expert]") {
  for (std::size_t at = 0; at < cases().size() - 1; ++at) {
    INFO("case " << at);
    const MixtureOfExpertsOptions& options = cases()[at];
    MixtureOfExperts module = make(options), other = make(options);
    const Tensor input = draw({13, options.dim}, 1).requires_grad_(), copy = input.detach().clone().requires_grad_();
    const Tensor output = module(input);
    backward(output, module->auxiliary_loss());
    const Expected expected = loop(options, *other, copy);
    backward(expected.output, expected.auxiliary_loss);
    CHECK(expected.dropped > 0);
    CHECK(at::allclose(output, expected.output, 1e-9));
    CHECK(at::allclose(module->auxiliary_loss(), expected.auxiliary_loss, 1e-9));
    CHECK(module->statistics().dropped.item<std::int64_t>() == expected.dropped);
    CHECK(module->statistics().routed.item<std::int64_t>() == 13 * options.top_k);
    CHECK(at::allclose(input.grad(), copy.grad(), 1e-9));
    for (const auto& parameter : module->named_parameters()) {
      INFO(parameter.key());
      CHECK(at::allclose(parameter.value().grad(), other->named_parameters()[parameter.key()].grad(), 1e-9));
    }
  }
}

/// This rank's slice of a whole parameter, as the layer declares it.
Tensor slice_like(const Tensor& whole, const Tensor& slice) {
  Tensor out = whole;
  for (const auto& where : danling::parallel::slices_of(slice)) {
    expect(where.size == whole.size(where.dim), "the whole size in the slice");
    out = out.narrow(where.dim, where.offset, slice.size(where.dim));
  }
  expect(out.sizes() == slice.sizes(), "declared slices");
  return out;
}

void expect_slices(const MixtureOfExperts& module, const MixtureOfExperts& whole, bool gradients) {
  for (const auto& parameter : module->named_parameters()) {
    const Tensor other = whole->named_parameters()[parameter.key()];
    const Tensor got = gradients ? parameter.value().grad() : parameter.value().detach();
    expect(got.defined(), concat("a gradient of ", parameter.key()));
    expect(at::allclose(got, slice_like(gradients ? other.grad() : other.detach(), parameter.value()), 1e-9, 1e-12),
           concat(gradients ? "the gradient of " : "", parameter.key(), " of one process"));
  }
}

ParallelContext context_of(const Group& world, std::int64_t expert, std::int64_t expert_tensor) {
  return {
      ParallelTopology(expert * expert_tensor, world.rank(), {{"expert", expert}, {"expert_tensor", expert_tensor}}),
      world};
}

TEST_CASE("MixtureOfExperts: several ranks have the outputs, drops and gradients of one process",
          "[parallel][expert]") {
  for (const auto& [experts, tensor] :
       std::vector<std::pair<int, int>>{{2, 1}, {3, 1}, {4, 1}, {1, 2}, {2, 2}, {1, 3}}) {
    for (std::size_t at = 0; at < cases().size(); ++at) {
      for (const std::int64_t tokens : {13, 2, 0}) {
        INFO(experts << " x " << tensor << " ranks, case " << at << ", " << tokens << " tokens");
        const MixtureOfExpertsOptions& options = cases()[at];
        MixtureOfExperts whole = make(options);
        const Tensor input = draw({tokens, options.dim}, 1), whole_input = input.clone().requires_grad_();
        const Tensor wanted = whole(whole_input.unsqueeze(0)).squeeze(0);
        backward(wanted, whole->auxiliary_loss());
        CHECK_NOTHROW(Group::run_threads(experts * tensor, [&, experts = experts, tensor = tensor](const Group& world) {
          MixtureOfExperts module = make(options);
          module->parallelize(context_of(world, experts, tensor));
          expect_slices(module, whole, false);
          const Tensor own = input.clone().requires_grad_();
          const Tensor output = module(own.unsqueeze(0)).squeeze(0);
          expect(at::allclose(output, wanted, 1e-9), "the output of one process");
          expect(at::allclose(module->auxiliary_loss(), whole->auxiliary_loss(), 1e-9), "the losses of one process");
          expect(module->statistics().dropped.equal(whole->statistics().dropped), "the drops of one process");
          expect(module->statistics().routed.equal(whole->statistics().routed), "all choices");
          expect(module->statistics().expert_load.equal(whole->statistics().expert_load), "the load of one process");
          backward(output, module->auxiliary_loss());
          expect(at::allclose(own.grad(), whole_input.grad(), 1e-9, 1e-12), "the input's gradient of one process");
          expect_slices(module, whole, true);
          const torch::NoGradGuard no_grad;
          expect(at::allclose(module->forward_with_loss(input).output, wanted, 1e-9), "the same without a graph");
        }));
      }
    }
  }
}

/// A residual block with a head, as a transformer's.
struct ExpertBlockImpl : torch::nn::Module {
  explicit ExpertBlockImpl(const MixtureOfExpertsOptions& options)
      : input(register_module("input", torch::nn::Linear(4, options.dim))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.dim})))),
        experts(register_module("experts", MixtureOfExperts(options))),
        output(register_module("output", torch::nn::Linear(options.dim, 2))) {
    to(torch::kDouble);
  }
  Tensor loss(const Tensor& rows) {
    Tensor hidden = input(rows);
    hidden = hidden + experts(norm(hidden));
    return (output(hidden) - rows.slice(-1, 0, 2)).square().mean() + experts->auxiliary_loss();
  }
  torch::nn::Linear input;
  torch::nn::LayerNorm norm;
  MixtureOfExperts experts;
  torch::nn::Linear output;
};

TEST_CASE("MixtureOfExperts: five steps of SGD have the parameters of one process", "[parallel][expert]") {
  const MixtureOfExpertsOptions options = {
      .dim = 6, .hidden_dim = 5, .num_experts = 4, .top_k = 2, .capacity_factor = 1.0, .balance_weight = 0.1};
  static std::mutex seeding;
  const auto train = [&](const ParallelContext& context) {
    std::shared_ptr<ExpertBlockImpl> block;
    {
      const std::lock_guard lock(seeding);
      torch::manual_seed(2);
      block = std::make_shared<ExpertBlockImpl>(options);
    }
    block->experts->parallelize(context);
    torch::optim::SGD optimizer(block->parameters(), torch::optim::SGDOptions(0.3).momentum(0.9));
    for (std::uint64_t step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      block->loss(draw({3, 5, 4}, step)).backward();
      optimizer.step();
    }
    return block;
  };
  const auto whole = train({});
  CHECK(whole->experts->statistics().dropped.item<std::int64_t>() > 0);
  for (const auto& [experts, tensor] : std::vector<std::pair<int, int>>{{2, 1}, {4, 1}, {1, 2}, {2, 2}}) {
    INFO(experts << " x " << tensor << " ranks");
    CHECK_NOTHROW(Group::run_threads(experts * tensor, [&, experts = experts, tensor = tensor](const Group& world) {
      const auto block = train(context_of(world, experts, tensor));
      for (const auto& parameter : block->named_parameters()) {
        expect(at::allclose(parameter.value(),
                            slice_like(whole->named_parameters()[parameter.key()], parameter.value()), 1e-8, 1e-10),
               concat(parameter.key(), " of one process"));
      }
      expect(block->experts->statistics().dropped.equal(whole->experts->statistics().dropped),
             "the drops of one process");
    }));
  }
}

TEST_CASE("MixtureOfExperts: jitter and the router's types are those of one process", "[parallel][expert]") {
  MixtureOfExpertsOptions options = cases()[0];
  options.jitter = 0.4;
  const Tensor input = draw({9, 6}, 1);
  const auto run = [&](const ParallelContext& context) {
    MixtureOfExperts module = make(options);
    module->parallelize(context);
    torch::manual_seed(4);
    return module(input).detach();
  };
  const Tensor jittered = run({});
  // Real processes: each has its generator.
  danling_test::check_ranks(danling_test::run_ranks(2,
                                                    [&](const Group& world) {
                                                      expect(at::allclose(run(context_of(world, 2, 1)), jittered, 1e-9),
                                                             "the output of one process");
                                                      return std::string("equal");
                                                    }),
                            "equal");
  MixtureOfExperts module = make(options);
  torch::manual_seed(4);
  const Tensor noise = torch::empty({9, 6}, torch::kDouble).uniform_(0.6, 1.4);
  const Tensor z = torch::matmul(input * noise, module->router->weight.t()).exp().sum(1).log().square().mean();
  torch::manual_seed(4);
  module(input);
  CHECK(at::allclose(module->statistics().router_z_loss, z, 1e-9));
  module->eval();
  module(input);
  CHECK(at::allclose(module->statistics().router_z_loss,
                     torch::matmul(input, module->router->weight.t()).exp().sum(1).log().square().mean(), 1e-9));
}

TEST_CASE("MixtureOfExperts: bfloat16, autocast, strided input, inference", "[parallel][expert]") {
  MixtureOfExpertsOptions options = cases()[0];
  options.capacity_factor = options.eval_capacity_factor = 4;
  MixtureOfExperts whole = make(options);
  const Tensor input = draw({6, 9}, 1).to(torch::kBFloat16).to(torch::kDouble).t();
  const Tensor wanted = whole(input);
  CHECK(at::allclose(whole(input.contiguous()), wanted, 1e-12));
  Group::run_threads(2, [&](const Group& world) {
    MixtureOfExperts module = make(options);
    module->to(torch::kFloat);
    module->parallelize(context_of(world, 2, 1));
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const Tensor mixed = module(input.to(torch::kFloat));
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    mixed.sum().backward();
    expect(mixed.scalar_type() == torch::kBFloat16, "autocast in the experts");
    expect(at::allclose(mixed.to(torch::kDouble), wanted, 0.05, 0.02), "the output of float64");
    expect(module->up_weight.grad().scalar_type() == torch::kFloat, "gradients in the parameters' type");
    expect(at::allclose(module->statistics().router_z_loss.to(torch::kDouble), whole->statistics().router_z_loss, 1e-5),
           "a router in float32 under autocast");
    module->to(torch::kBFloat16);
    const Tensor narrow = module(input.to(torch::kBFloat16));
    narrow.sum().backward();
    expect(narrow.scalar_type() == torch::kBFloat16, "the type of the input");
    expect(at::allclose(narrow.to(torch::kDouble), wanted, 0.05, 0.05), "the output of float64");
  });
  {
    const c10::InferenceMode inference;
    MixtureOfExperts fresh = make(options);
  }
  MixtureOfExperts module = make(options);
  module->eval();
  {
    const c10::InferenceMode inference;
    module(input);
  }
  module->train();
  module(input).sum().backward();
  CHECK(module->statistics().routed.item<std::int64_t>() == 36);
}

TEST_CASE("MixtureOfExperts: capacity, counters, copies and text", "[parallel][expert]") {
  MixtureOfExperts module(MixtureOfExpertsOptions{
      .dim = 2, .hidden_dim = 3, .num_experts = 10, .top_k = 1, .capacity_factor = 1.1, .eval_capacity_factor = 100});
  CHECK(module->capacity(100) == 11);  // 1.1 * 100 / 10 rounds above 11
  CHECK(module->capacity(1) == 1);
  CHECK(module->capacity(0) == 0);
  module->eval();
  CHECK(module->capacity(100) == 100);
  CHECK_FALSE(module->statistics().routed.defined());
  module->reset_statistics();
  const Tensor input = torch::ones({5, 2});
  module(input);
  module(input);
  CHECK(module->statistics().routed.item<std::int64_t>() == 10);
  CHECK(module->statistics().expert_load.sum().item<std::int64_t>() == 5);
  module->reset_statistics();
  CHECK(module->statistics().routed.item<std::int64_t>() == 0);
  const auto copy = std::dynamic_pointer_cast<MixtureOfExpertsImpl>(module->clone());
  CHECK(at::allclose(copy->forward(input), module(input)));
  CHECK(copy->statistics().routed.item<std::int64_t>() == 5);
  CHECK_FALSE(copy->up_weight.is_alias_of(module->up_weight));
  CHECK_THAT(c10::str(*module),
             ContainsSubstring("parallel::MixtureOfExperts(2, hidden_dim=3, num_experts=10, top_k=1, "
                               "capacity_factor=1.1, activation=swiglu, ranks=1x1)"));
  Group::run_threads(2, [](const Group& world) {
    MixtureOfExperts sliced = make(cases()[0]);
    sliced->parallelize(context_of(world, 2, 1));
    const auto other = std::dynamic_pointer_cast<MixtureOfExpertsImpl>(sliced->clone());
    expect(danling::parallel::slices_of(other->up_weight).size() == 1, "slices of the copy");
    const Tensor rows = draw({4, 6}, 1);
    expect(at::allclose(other->forward(rows), sliced(rows)), "the output of the copy");
  });
}

TEST_CASE("MixtureOfExperts: options out of range are refused", "[parallel][expert]") {
  const auto error = [](MixtureOfExpertsOptions options) {
    options.dim = options.dim == 0 ? 2 : options.dim;
    options.hidden_dim = options.num_experts = 3;
    return error_of<ConfigError>([&] { MixtureOfExpertsImpl{options}; });
  };
  CHECK(error({.dim = -1}) ==
        "[parallel.MixtureOfExperts] expected dim, hidden_dim and num_experts above 0, got -1, 3 and 3");
  CHECK(error({.top_k = 4}) == "[parallel.MixtureOfExperts] expected top_k of 1 to num_experts, 3, got 4");
  CHECK(error({.capacity_factor = 0}) ==
        "[parallel.MixtureOfExperts] expected capacity_factor and eval_capacity_factor above 0, got 0.0 and 2.0");
  CHECK(error({.jitter = 1}) == "[parallel.MixtureOfExperts] expected a jitter of 0 to below 1, got 1.0");
  CHECK(error({.top_k = 1, .normalize_gates = true}) ==
        "[parallel.MixtureOfExperts] expected top_k above 1 with normalize_gates, got 1: the weight of the only expert "
        "would be 1, and the router would get no gradient of the output");
  MixtureOfExperts module = make(cases()[0]);
  CHECK(error_of<DataError>([&] { module(torch::zeros({2, 5})); }) ==
        "[parallel.MixtureOfExperts] expected floating [..., 6], got Float [2, 5]");
  CHECK(error_of<StateError>([&] { module->auxiliary_loss(); }) ==
        "[parallel.MixtureOfExperts] expected a forward pass before auxiliary_loss, got none");
  CHECK(error_of<StateError>([] {
          Group::run_threads(2, [](const Group& world) {
            MixtureOfExperts twice = make(cases()[0]);
            twice->parallelize(context_of(world, 2, 1));
            twice->parallelize(context_of(world, 2, 1));
          });
        }) ==
        "[parallel.MixtureOfExperts] expected one call of parallelize, got a second on a module that holds slices");
}

}  // namespace
}  // namespace expert_mixture_test
