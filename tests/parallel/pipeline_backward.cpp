// Backward passes in two parts against whole ones: the same gradients, and nothing computed twice.
#include <parallel/pipeline_backward.hpp>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <parallel/pipeline_models.hpp>

#include <support/catch.hpp>

namespace pipeline_backward_test {
namespace {

using danling::parallel::detail::StageGraph;
using pipeline_test::near;
using pipeline_test::normal;
using pipeline_test::Tensors;

thread_local int products = 0;

std::unique_ptr<at::ObserverContext> count_products(const at::RecordFunction& function) {
  const std::string name = function.name();
  products += name == "aten::mm" || name == "aten::bmm" || name == "aten::addmm" ? 1 : 0;
  return nullptr;
}

/// Matrix products of a call.
template <class Call>
int products_of(Call&& call) {
  const auto handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(&count_products).scopes({at::RecordScope::FUNCTION}));
  products = 0;
  call();
  at::removeCallback(handle);
  return products;
}

struct Gradients {
  Tensors inputs;
  Tensors parameters;
  int input_products = 0;
  int weight_products = 0;
};

using Forward = std::function<Tensors(const Tensors& inputs)>;

Gradients gradients_of(const Forward& forward, const Tensors& parameters, const Tensors& values, bool split) {
  Tensors inputs;
  for (const auto& value : values) {
    inputs.push_back(value.detach().set_requires_grad(value.is_floating_point()));
  }
  for (const auto& parameter : parameters) {
    parameter.mutable_grad() = at::Tensor();
  }
  Gradients out;
  const Tensors outputs = forward(inputs);
  Tensors seeds;
  std::int64_t seed = 500;
  for (const auto& output : outputs) {
    seeds.push_back(output.requires_grad() ? normal(output.sizes(), seed++) : at::Tensor());
  }
  StageGraph graph(outputs, inputs);
  if (split) {
    out.input_products = products_of([&] { out.inputs = graph.backward_input(seeds); });
    for (const auto& parameter : parameters) {
      CHECK_FALSE(parameter.grad().defined());
    }
    out.weight_products = products_of([&] { graph.backward_weight(); });
  } else {
    out.input_products = products_of([&] { out.inputs = graph.backward(seeds); });
  }
  for (const auto& parameter : parameters) {
    out.parameters.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
  }
  return out;
}

/// Checks that split passes give the same gradients, and the number of products of each part.
void check_split(const Forward& forward, const Tensors& parameters, const Tensors& values, int input_products,
                 int weight_products) {
  const Gradients plain = gradients_of(forward, parameters, values, false);
  const Gradients split = gradients_of(forward, parameters, values, true);
  REQUIRE(split.inputs.size() == plain.inputs.size());
  for (std::size_t i = 0; i < plain.inputs.size(); ++i) {
    INFO("input " << i);
    CHECK(near(split.inputs[i], plain.inputs[i]));
  }
  for (std::size_t i = 0; i < plain.parameters.size(); ++i) {
    INFO("parameter " << i);
    CHECK(near(split.parameters[i], plain.parameters[i]));
  }
  CHECK(plain.input_products == input_products + weight_products);
  CHECK(split.input_products == input_products);
  CHECK(split.weight_products == weight_products);
}

TEST_CASE("StageGraph: layers compute products for inputs first, for weights later", "[parallel][pipeline]") {
  const auto layers = pipeline_test::mlp(2);  // four linear layers, two norms
  Tensors parameters;
  for (const auto& module : layers.modules) {
    for (const auto& parameter : module->parameters()) {
      parameters.push_back(parameter);
    }
  }
  const auto all = [&](const Tensors& inputs) { return layers.forward[1](layers.forward[0](inputs)); };
  check_split(all, parameters, {normal({3, 6}, 1)}, 4, 4);
  check_split(all, parameters, {normal({2, 3, 6}, 1)}, 4, 4);  // another operator than for two dimensions
}

TEST_CASE("StageGraph: attention computes nothing twice", "[parallel][pipeline]") {
  const auto layers = pipeline_test::transformer(3);
  const auto parameters = layers.modules[1]->parameters();
  const Tensors values = {normal({5, 2, 8}, 1), at::zeros({5, 2}, at::kBool)};
  const auto plain = gradients_of(layers.forward[1], parameters, values, false);
  const auto split = gradients_of(layers.forward[1], parameters, values, true);
  CHECK(near(split.inputs[0], plain.inputs[0]));
  CHECK_FALSE(split.inputs[1].defined());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    CHECK(near(split.parameters[i], plain.parameters[i]));
  }
  CHECK(split.weight_products == 4);  // of the projections in and out, and of the feed-forward layers
  CHECK(split.input_products + split.weight_products == plain.input_products);
}

TEST_CASE("StageGraph: shared parameters, views of them and several paths", "[parallel][pipeline]") {
  const at::Tensor w = normal({4, 4}, 1).set_requires_grad(true);
  const at::Tensor b = normal({4}, 2).set_requires_grad(true);
  const Tensors parameters = {w, b};
  const Tensors x = {normal({3, 4}, 3)};
  check_split(
      [&](const Tensors& in) {
        const at::Tensor view = w.t();  // one node for both uses
        return Tensors{(in[0].mm(view) + b).tanh().mm(view) * b};
      },
      parameters, x, 2, 2);
  check_split([&](const Tensors& in) { return Tensors{in[0].mm(w).mm(w.mm(w)) + b}; }, parameters, x, 2, 4);
  // A residual path, an output of parameters alone, one that is the input itself, and one without a graph.
  check_split([&](const Tensors& in) { return Tensors{in[0] + in[0].mm(w), w.mm(w) * b, in[0], in[0].detach()}; },
              parameters, x, 1, 3);
  // An input that nothing uses, and one of integers.
  check_split([&](const Tensors& in) { return Tensors{in[0].mm(w).index_select(0, in[2])}; }, parameters,
              {x[0], normal({2}, 4), at::tensor({2, 0})}, 1, 1);
  // No parameters; no inputs that need a gradient.
  check_split([](const Tensors& in) { return Tensors{in[0].mm(in[0].t())}; }, parameters, x, 2, 0);
  check_split([&](const Tensors& in) { return Tensors{w.index_select(0, in[0]).mm(w)}; }, parameters,
              {at::tensor({1, 2})}, 0, 2);
}

TEST_CASE("StageGraph: hooks of tensors change a gradient once", "[parallel][pipeline]") {
  const at::Tensor w = normal({4, 4}, 1).set_requires_grad(true);
  check_split(
      [&](const Tensors& in) {
        const at::Tensor hidden = in[0].mm(w);
        hidden.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
        return Tensors{hidden.tanh()};
      },
      {w}, {normal({3, 4}, 3)}, 1, 1);
}

struct Scaled : torch::autograd::Function<Scaled> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w) {
    context->save_for_backward({x, w});
    return x * w;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1], (gradients[0] * saved[0]).sum(0)};
  }
};

TEST_CASE("StageGraph: functions of a program run in both parts with the same gradients", "[parallel][pipeline]") {
  const at::Tensor w = normal({4}, 1).set_requires_grad(true);
  check_split([&](const Tensors& in) { return Tensors{Scaled::apply(in[0].sin(), w).cos()}; }, {w}, {normal({3, 4}, 3)},
              0, 0);
}

TEST_CASE("StageGraph: a deep graph needs no deep stack", "[parallel][pipeline]") {
  const at::Tensor w = at::ones({1}, at::kDouble).set_requires_grad(true);
  const at::Tensor x = at::ones({1}, at::kDouble).set_requires_grad(true);
  at::Tensor y = x;
  for (int i = 0; i < 50'000; ++i) {
    y = y * w;
  }
  StageGraph graph({y}, {x});
  y = at::Tensor();
  CHECK(graph.backward_input({at::ones({1}, at::kDouble)})[0].item<double>() == 1);
  graph.backward_weight();
  CHECK(w.grad().item<double>() == 50'000);
}

}  // namespace
}  // namespace pipeline_backward_test
