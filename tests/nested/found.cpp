// Errors that test programs found in nested tensors: leaves, hooks, copies, channels.
#include <danling/tensors/custom_function.hpp>

#include "nested/nested_tests.hpp"

namespace nested_found {
namespace {

using danling::NestedTensor;
using nested_tests::check_per_element;
using nested_tests::random_elements;
using torch::Tensor;

NestedTensor leaf() { return NestedTensor({torch::ones({3, 2}), torch::ones({1, 2})}, {.requires_grad = true}); }

std::vector<Tensor> parameters() {
  return {torch::ones({3, 2}, torch::requires_grad()), torch::ones({1, 2}, torch::requires_grad())};
}

struct Products : torch::autograd::Function<Products> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& a,
                                                const Tensor& b) {
    context->save_for_backward({a, b});
    return {a * b, a + b};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1] + gradients[1], gradients[0] * saved[0] + gradients[1]};
  }
};

TEST_CASE("NestedTensor: a leaf that requires gradients is not changed in place where they are recorded", "[nested]") {
  const auto refuses = [](const std::function<void(const NestedTensor&)>& change, const char* operation) {
    INFO(operation);
    const NestedTensor x = leaf();
    CHECK_THROWS_WITH(change(x), Catch::Contains(operation) && Catch::Contains("got a leaf that requires gradients"));
    CHECK(x.is_leaf());
    CHECK(x.concat().detach().equal(torch::ones({4, 2})));
    const torch::NoGradGuard guard;
    change(x);
    CHECK(x.is_leaf());
    CHECK(x.requires_grad());
  };
  refuses([](const NestedTensor& x) { x.add_(1); }, "nested_tensor.add_");
  refuses([](const NestedTensor& x) { x.zero_(); }, "nested_tensor.zero_");
  refuses([](const NestedTensor& x) { x.copy_(x * 2); }, "nested_tensor.copy_");
  refuses([](const NestedTensor& x) { x.masked_fill_(x > 0, 2); }, "nested_tensor.masked_fill_");
  refuses([](const NestedTensor& x) { NestedTensor(x).set(0, torch::zeros({2, 2})); }, "nested_tensor.set");
  refuses([](const NestedTensor& x) { NestedTensor(x).set({0, 1}, torch::zeros({2})); }, "nested_tensor.set");
  refuses([](const NestedTensor& x) { x.slice(1, 0, 2).add_(1); }, "nested_tensor.view");
}

TEST_CASE("NestedTensor: detach_ takes a tensor out of the graph", "[nested]") {
  const NestedTensor x(parameters());
  const Tensor y = x * 2;
  y.detach_();
  CHECK_FALSE(y.requires_grad());
  CHECK(y.is_leaf());
  CHECK_FALSE((y * 2).requires_grad());
  y.add_(1);
  CHECK(NestedTensor(y).concat().equal(torch::full({4, 2}, 3.0)));
  const NestedTensor z = leaf();
  z.detach_();
  CHECK_FALSE(z.requires_grad());
}

TEST_CASE("NestedTensor: set_data and Module::to take nested tensors", "[nested]") {
  const NestedTensor x = leaf();
  const NestedTensor other({torch::ones({2, 2}), torch::ones({2, 2})}, {.dtype = torch::kDouble});
  x.set_data(other);
  CHECK(x.scalar_type() == torch::kDouble);
  CHECK(x.sizes() == torch::IntArrayRef({2, 2, 2}));
  CHECK(x.requires_grad());
  (x * 3).sum().backward();
  CHECK(NestedTensor(x.grad()).concat().equal(torch::full({4, 2}, 3.0, torch::kDouble)));
  CHECK_THROWS_WITH(x.set_data(torch::ones({2})), Catch::Contains("incompatible tensor type"));
  Tensor plain = torch::ones({2});
  CHECK_THROWS_WITH(plain.set_data(x), Catch::Contains("incompatible tensor type"));

  struct Holder : torch::nn::Module {
    Tensor buffer = register_buffer("buffer", NestedTensor({torch::ones({3}), torch::ones({1})}));
  };
  Holder holder;
  holder.to(torch::kDouble);
  CHECK(holder.buffer.scalar_type() == torch::kDouble);
  CHECK(NestedTensor(holder.buffer).concat().equal(torch::ones({4}, torch::kDouble)));
}

TEST_CASE("NestedTensor: hooks and retain_grad of an inner tensor see its gradient", "[nested]") {
  const auto elements = parameters();
  const NestedTensor x(elements);
  const Tensor y = x * 2;
  int calls = 0;
  y.register_hook([&](const Tensor& gradient) {
    ++calls;
    CHECK(NestedTensor(gradient).concat().equal(torch::full({4, 2}, 3.0)));
    return gradient * 10;
  });
  (y * 3).sum().backward();
  CHECK(calls == 1);
  CHECK(elements[0].grad().equal(torch::full({3, 2}, 60.0)));

  const Tensor z = NestedTensor(parameters()) * 2;
  z.retain_grad();
  (z * z).sum().backward();
  REQUIRE(z.grad().defined());
  CHECK(NestedTensor(z.grad()).concat().equal(torch::full({4, 2}, 4.0)));
}

TEST_CASE("NestedTensor: a custom function takes NestedTensors by their own type", "[nested]") {
  const NestedTensor a = leaf(), b = leaf();
  const auto both = Products::apply(a, b);
  (both[0].sum() + (both[1] * 2).sum()).backward();
  CHECK(NestedTensor(a.grad()).concat().equal(torch::full({4, 2}, 3.0)));
  CHECK(NestedTensor(b.grad()).concat().equal(torch::full({4, 2}, 3.0)));

  const auto elements = parameters();
  const NestedTensor c(elements);
  const auto mixed = Products::apply(c * 2, c);
  (mixed[0].sum() + (mixed[1] * 2).sum()).backward();
  CHECK(elements[0].grad().equal(torch::full({3, 2}, 10.0)));  // of 2 c^2 + 6 c
}

TEST_CASE("NestedTensor: prelu has one weight for all values or one for each channel", "[nested]") {
  const Tensor one = torch::full({1}, 0.25, torch::kDouble), two = torch::tensor({0.25, 0.5}, torch::kDouble);
  for (const auto& shapes : std::vector<std::vector<nested_tests::Sizes>>{
           {{3}, {5}, {0}}, {{3, 2}, {1, 2}}, {{2, 3}, {2, 5}}, {{2, 3, 4}, {2, 5, 1}}}) {
    for (const bool batch_first : {true, false}) {
      check_per_element(
          random_elements(shapes), {.batch_first = batch_first}, [&](const Tensor& x) { return torch::prelu(x, one); },
          [&](const Tensor& x) { return torch::prelu(x, one); });
    }
  }
  check_per_element(
      random_elements({{3, 2}, {1, 2}}), {}, [&](const Tensor& x) { return torch::prelu(x, two); },
      [&](const Tensor& x) { return torch::prelu(x, two); });
  for (const auto& shapes : std::vector<std::vector<nested_tests::Sizes>>{{{2, 3}, {2, 5}}, {{2, 3, 4}, {2, 5, 1}}}) {
    check_per_element(
        random_elements(shapes), {}, [&](const Tensor& x) { return torch::prelu(x, two); },
        [&](const Tensor& x) { return torch::prelu(x.unsqueeze(0), two).squeeze(0); });
  }
  CHECK_THROWS_WITH(torch::prelu(NestedTensor({torch::ones({3}), torch::ones({2})}), torch::ones({3})),
                    Catch::Contains("static dimension for channels"));
}

TEST_CASE("NestedTensor: integers are sorted along one of two ragged dimensions behind a static one", "[nested]") {
  for (const auto dtype : {torch::kLong, torch::kInt, torch::kChar, torch::kByte}) {
    // Equal largest sizes, so that sizes do not reveal exchanged dimensions.
    for (const auto& shapes :
         std::vector<std::vector<nested_tests::Sizes>>{{{2, 2, 3}, {2, 4, 1}}, {{2, 1, 4}, {2, 4, 2}, {2, 3, 3}}}) {
      for (const std::int64_t dim : {0, 1, 2}) {
        for (const bool descending : {false, true}) {
          INFO(dtype << ", " << dim << ", " << descending);
          auto elements = random_elements(shapes, torch::kDouble);
          for (Tensor& element : elements) {
            element = element.abs().to(dtype);
          }
          check_per_element(
              elements, {}, [&](const Tensor& x) { return std::get<0>(x.sort(dim + 1, descending)); },
              [&](const Tensor& x) { return std::get<0>(x.sort(dim, descending)); });
        }
      }
    }
  }
}

}  // namespace
}  // namespace nested_found
