// Matrix products of NestedTensors: with weights, with matrices for each element, and with one another.
#include <string>
#include <vector>

#include <danling/core/error.hpp>

#include <nested/element_checks.hpp>

namespace nested_matmul {
namespace {

using danling::NestedTensor;
using element_checks::check_like_each_element;
using element_checks::Elements;
using element_checks::random_leaves;
using torch::Tensor;

struct ProductCase {
  std::string name;
  std::vector<std::vector<std::int64_t>> a, b;
};

std::vector<std::vector<std::int64_t>> with_lengths(const std::vector<std::int64_t>& lengths,
                                                    const std::function<std::vector<std::int64_t>(std::int64_t)>& of) {
  std::vector<std::vector<std::int64_t>> out;
  for (const std::int64_t length : lengths) {
    out.push_back(of(length));
  }
  return out;
}

const std::vector<std::vector<std::int64_t>> product_lengths = {{3, 5, 2}, {4, 0, 6, 6, 1}, {7}, {4, 4, 4}, {0, 0}};

TEST_CASE("matmul: nested times nested is the product of each two elements", "[nested][matmul]") {
  torch::manual_seed(2);
  using Shape = std::vector<std::int64_t>;
  for (const auto& lengths : product_lengths) {
    const auto of = [&](auto function) { return with_lengths(lengths, function); };
    const std::vector<ProductCase> cases = {
        {"tokens times columns", of([](auto l) { return Shape{l, 4}; }), of([](auto l) { return Shape{4, l}; })},
        {"scores times tokens", of([](auto l) { return Shape{l, l}; }), of([](auto l) { return Shape{l, 3}; })},
        {"over the length", of([](auto l) { return Shape{4, l}; }), of([](auto l) { return Shape{l, 3}; })},
        {"other lengths", of([](auto l) { return Shape{l, 4}; }), of([](auto l) { return Shape{4, 2 * l + 1}; })},
        {"heads", of([](auto l) { return Shape{2, l, 4}; }), of([](auto l) { return Shape{2, 4, l}; })},
        {"heads over the length", of([](auto l) { return Shape{2, l, l}; }), of([](auto l) { return Shape{2, l, 3}; })},
        {"one head for all", of([](auto l) { return Shape{3, l, 4}; }), of([](auto l) { return Shape{1, 4, l}; })},
        {"matrices of tokens", of([](auto l) { return Shape{l, 2, 4}; }), of([](auto l) { return Shape{l, 4, 3}; })},
        {"two dimensions of heads", of([](auto l) { return Shape{2, 2, l, 4}; }),
         of([](auto l) { return Shape{2, 2, 4, l}; })},
    };
    for (const ProductCase& one : cases) {
      INFO(one.name << ", " << lengths.size() << " elements from length " << lengths.front());
      const auto multiply = [](const Elements& inputs) { return torch::matmul(inputs[0], inputs[1]); };
      check_like_each_element({random_leaves(one.a), random_leaves(one.b)}, multiply, multiply);
      check_like_each_element({random_leaves(one.a, torch::kFloat32), random_leaves(one.b, torch::kFloat32)}, multiply,
                              multiply, {}, {1e-4, 1e-5});
      if (one.a.front().size() == 2) {
        check_like_each_element(
            {random_leaves(one.a), random_leaves(one.b)},
            [](const Elements& inputs) { return torch::bmm(inputs[0], inputs[1]); }, multiply);
      }
    }
  }
}

TEST_CASE("matmul: a weight multiplies all tokens, whatever comes before the last dimension", "[nested][matmul]") {
  torch::manual_seed(3);
  for (const auto& lengths : product_lengths) {
    for (const bool batch_first : {true, false}) {
      const Tensor matrix = torch::randn({4, 3}, torch::kFloat64).requires_grad_();
      const Tensor vector = torch::randn({4}, torch::kFloat64).requires_grad_();
      for (const Tensor& weight : {matrix, vector}) {
        for (const bool heads : {false, true}) {
          const auto sizes = with_lengths(lengths, [&](std::int64_t length) {
            return heads ? std::vector<std::int64_t>{2, length, 4} : std::vector<std::int64_t>{length, 4};
          });
          const auto multiply = [&](const Elements& inputs) { return torch::matmul(inputs[0], weight); };
          check_like_each_element({random_leaves(sizes)}, multiply, multiply, {weight}, {},
                                  {.batch_first = batch_first});
        }
      }
    }
  }
}

TEST_CASE("matmul: a plain batch has a matrix for each element", "[nested][matmul]") {
  torch::manual_seed(4);
  const std::vector<std::int64_t> lengths = {3, 0, 5};
  const Elements tokens = random_leaves(with_lengths(lengths, [](auto l) { return std::vector{l, std::int64_t{4}}; }));
  const Tensor weights = torch::randn({3, 4, 2}, torch::kFloat64).requires_grad_();
  std::size_t next = 0;
  check_like_each_element(
      {tokens}, [&](const Elements& inputs) { return torch::bmm(inputs[0], weights); },
      [&](const Elements& inputs) { return torch::mm(inputs[0], weights[static_cast<std::int64_t>(next++)]); },
      {weights});
  const Tensor left = torch::randn({2, 4}, torch::kFloat64).requires_grad_();
  const Elements columns = random_leaves(with_lengths(lengths, [](auto l) { return std::vector{std::int64_t{4}, l}; }));
  const auto multiply = [&](const Elements& inputs) { return torch::matmul(left, inputs[0]); };
  check_like_each_element({columns}, multiply, multiply, {left});
}

TEST_CASE("baddbmm: adds to the product of each two elements", "[nested][matmul]") {
  torch::manual_seed(5);
  const std::vector<std::int64_t> lengths = {3, 0, 5};
  using Shape = std::vector<std::int64_t>;
  for (const auto& [beta, alpha] : std::vector<std::pair<double, double>>{{1, 1}, {0.5, 2}, {0, 3}}) {
    check_like_each_element(
        {random_leaves(with_lengths(lengths, [](auto l) { return Shape{l, l}; })),
         random_leaves(with_lengths(lengths, [](auto l) { return Shape{l, 4}; })),
         random_leaves(with_lengths(lengths, [](auto l) { return Shape{4, l}; }))},
        [beta = beta, alpha = alpha](const Elements& inputs) {
          return torch::baddbmm(inputs[0], inputs[1], inputs[2], beta, alpha);
        },
        [beta = beta, alpha = alpha](const Elements& inputs) {
          return torch::addmm(inputs[0], inputs[1], inputs[2], beta, alpha);
        });
  }
}

TEST_CASE("matmul: shapes that do not fit are named", "[nested][matmul]") {
  const NestedTensor a({torch::zeros({3, 4}), torch::zeros({5, 4})});
  CHECK_THROWS_WITH(
      torch::matmul(a, NestedTensor({torch::zeros({4, 2}), torch::zeros({3, 2})})),
      ContainsSubstring("[nested_tensor.matmul] expected the columns of the first elements to be the rows "
                        "of the second, got (3, 4), (5, 4) and (4, 2), (3, 2)"));
  CHECK_THROWS_WITH(torch::bmm(a, NestedTensor(Elements{torch::zeros({4, 2})})),
                    ContainsSubstring("[nested_tensor.bmm] expected as many elements, got 2 and 1"));
  CHECK_THROWS_WITH(torch::matmul(a, torch::zeros({5, 4})),
                    ContainsSubstring("[nested_tensor.matmul] expected elements whose last dimension is static and as "
                                      "long as the matrix has rows, got elements (3, 4), (5, 4) and a matrix of shape "
                                      "(5, 4)"));
  const NestedTensor heads({torch::zeros({2, 3, 4}), torch::zeros({2, 5, 4})});
  CHECK_THROWS_WITH(torch::matmul(heads, NestedTensor({torch::zeros({3, 4, 3}), torch::zeros({3, 4, 5})})),
                    ContainsSubstring("[nested_tensor.matmul] expected elements with the same size of dimension 0, got "
                                      "(2, 3, 4), (2, 5, 4) and (3, 4, 3), (3, 4, 5)"));
  CHECK_THROWS_AS(torch::matmul(torch::zeros({7, 5}), a), danling::DataError);
}

TEST_CASE("einsum: letters of tokens, of pairs of tokens, and sums over them", "[nested][matmul]") {
  torch::manual_seed(18);
  struct EinsumCase {
    std::string equation, of_element;
    bool second_is_plain = false;
  };
  const Tensor matrix = torch::randn({4, 3}, torch::kFloat64).requires_grad_();
  for (const auto& lengths : product_lengths) {
    for (const EinsumCase& one : std::vector<EinsumCase>{{"bld,de->ble", "ld,de->le", true},
                                                         {"bld,de", "ld,de", true},
                                                         {"b l d , d e -> b e l", "ld,de->el", true},
                                                         {"bld,bsd->bls", "ld,sd->ls"},
                                                         {"bld,bsd->bsl", "ld,sd->sl"},
                                                         {"bld,bld->bl", "ld,ld->l"},
                                                         {"bld,ble->bde", "ld,le->de"},
                                                         {"bld,ble->b", "ld,le->"},
                                                         {"bld,bse->blsde", "ld,se->lsde"}}) {
      INFO(one.equation << ", " << lengths.size() << " elements from length " << lengths.front());
      const auto tokens = with_lengths(lengths, [](auto l) { return std::vector{l, std::int64_t{4}}; });
      const bool implied = one.equation.find("->") == std::string::npos;
      std::vector<Elements> inputs = {random_leaves(tokens)};
      if (!one.second_is_plain) {
        inputs.push_back(random_leaves(tokens));
      }
      const auto with = [&](const std::string& equation) {
        return [&, equation](const Elements& from) {
          return torch::einsum(equation, {from[0], one.second_is_plain ? matrix : from[1]});
        };
      };
      // Without an arrow the letters come in the alphabet's order: b, e, l.
      check_like_each_element(inputs, with(one.equation), with(implied ? "ld,de->el" : one.of_element),
                              one.second_is_plain ? Elements{matrix} : Elements{});
    }
  }
}

TEST_CASE("einsum: a sum over all tokens of all elements is a plain tensor", "[nested][matmul]") {
  torch::manual_seed(19);
  const Elements tokens = {torch::randn({3, 4}), torch::randn({0, 4}), torch::randn({5, 4})};
  const NestedTensor x(tokens);
  const Tensor all = torch::cat(tokens);
  CHECK(torch::allclose(torch::einsum("bld,ble->de", {x, x}), torch::mm(all.t(), all), 1e-5, 1e-5));
}

TEST_CASE("einsum: equations without a meaning are refused", "[nested][matmul]") {
  const NestedTensor x({torch::zeros({3, 4}), torch::zeros({5, 4})});
  CHECK_THROWS_WITH(torch::einsum("bld,lk->bkd", {x, torch::zeros({5, 2})}),
                    ContainsSubstring("[nested_tensor.einsum] expected NestedTensors as all operands with the ragged "
                                      "letter l of bld,lk->bkd, got a tensor of shape (5, 2)"));
}

}  // namespace
}  // namespace nested_matmul
