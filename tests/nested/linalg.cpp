// Sums of products, distances, norms and complex values of nested tensors.
#include <danling/core/error.hpp>

#include "nested/element_checks.hpp"
#include "nested/nested_tests.hpp"

namespace nested_linalg {
namespace {

using danling::NestedTensor;
using element_checks::check_like_each_element;
using element_checks::Elements;
using element_checks::random_leaves;
using nested_tests::Sizes;
using torch::Tensor;

const std::vector<Sizes> linalg_tokens = {{3, 4}, {0, 4}, {5, 4}, {1, 4}};

TEST_CASE("NestedTensor: addmm adds to the product of tokens with a weight", "[nested]") {
  torch::manual_seed(1);
  const Elements shared = random_leaves({{2}, {4, 2}});
  for (const auto& [beta, alpha] : {std::pair(1.0, 1.0), std::pair(0.5, 2.0), std::pair(0.0, 1.0)}) {
    const auto call = [&](const Elements& at) { return torch::addmm(shared[0], at[0], shared[1], beta, alpha); };
    check_like_each_element({random_leaves(linalg_tokens)}, call, call, shared);
  }
  const NestedTensor x(random_leaves(linalg_tokens));
  CHECK_THROWS_WITH(
      torch::addmm(x, shared[1], shared[1].t()),
      ContainsSubstring("[nested_tensor.addmm] expected a NestedTensor as a factor, got one to add only"));
}

TEST_CASE("NestedTensor: addbmm adds the products of all elements", "[nested]") {
  torch::manual_seed(2);
  const Elements left = random_leaves({{2, 3}, {2, 5}, {2, 0}}), right = random_leaves({{3, 4}, {5, 4}, {0, 4}});
  const Tensor self = torch::randn({2, 4}, torch::kDouble).requires_grad_();
  const Tensor got = torch::addbmm(self, NestedTensor(left), NestedTensor(right), 0.5, 2);
  Tensor expected = self * 0.5;
  for (std::size_t i = 0; i < left.size(); ++i) {
    expected = expected + 2 * torch::mm(left[i], right[i]);
  }
  CHECK(got.allclose(expected));
  Elements leaves = {self, left[0], left[1], right[0], right[1]};
  const auto gradients = torch::autograd::grad({got.square().sum()}, leaves),
             wanted = torch::autograd::grad({expected.square().sum()}, leaves);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    CHECK(gradients[i].allclose(wanted[i]));
  }
  const NestedTensor x(right);
  CHECK_THROWS_WITH(torch::addbmm(self, x, x.transpose(1, 2)),
                    ContainsSubstring("[nested_tensor.addbmm] expected elements whose products have one size, to add "
                                      "them, got (3, 3), (5, 5), (0, 0)"));
}

TEST_CASE("NestedTensor: a product of a ragged dimension with a padded tensor says how to nest it", "[nested]") {
  const NestedTensor x(random_leaves({{4, 3}, {4, 5}}));
  CHECK_THROWS_WITH(
      torch::matmul(x, torch::ones({2, 5, 6}, torch::kDouble)),
      ContainsSubstring("got (4, 3), (4, 5) and (2, 5, 6); with a ragged dimension, convert a padded tensor "
                        "with nested_like() or from_tensor_mask()"));
}

TEST_CASE("NestedTensor: cdist is that of the tokens of two sequences, or of tokens and a table", "[nested]") {
  torch::manual_seed(3);
  for (const double p : {2.0, 1.0, 3.0}) {
    const auto call = [&](const Elements& at) { return torch::cdist(at[0], at[1], p); };
    check_like_each_element({random_leaves(linalg_tokens), random_leaves({{2, 4}, {3, 4}, {6, 4}, {1, 4}})}, call,
                            call);
    const Elements table = random_leaves({{7, 4}});
    const auto to_table = [&](const Elements& at) { return torch::cdist(at[0], table[0], p); };
    check_like_each_element({random_leaves(linalg_tokens)}, to_table, to_table, table);
  }
  const NestedTensor equal(random_leaves({{3, 4}, {3, 4}}));
  CHECK(NestedTensor(torch::cdist(equal, equal)).ragged_dims() == Sizes{0, 1});
  CHECK_THROWS_WITH(torch::cdist(equal, torch::ones({2, 3, 4}, torch::kDouble)),
                    ContainsSubstring("[nested_tensor.cdist] expected two NestedTensors, or one first and a table of "
                                      "vectors (count, features), got a tensor of shape (2, 3, 4)"));
  const danling::NoNestedFallback forbidden;
  CHECK_THROWS_WITH(torch::cdist(equal, equal),
                    ContainsSubstring("[nested_tensor.cdist] expected operators with kernels"));
  CHECK_NOTHROW(torch::cdist(equal, torch::ones({2, 4}, torch::kDouble)));
}

TEST_CASE("NestedTensor: tensordot sums over static dimensions, or over all tokens", "[nested]") {
  torch::manual_seed(4);
  const Elements weight = random_leaves({{4, 2, 3}, {2, 4}});
  const auto last = [&](const Elements& at) {
    return torch::tensordot(at[0], weight[0], {NestedTensor::is_nested(at[0]) ? 2 : 1}, {0});
  };
  check_like_each_element({random_leaves(linalg_tokens)}, last, last, {weight[0]});
  const auto two = [&](const Elements& at) {
    return NestedTensor::is_nested(at[0]) ? torch::tensordot(at[0], weight[1], {1, 3}, {0, 1})
                                          : torch::tensordot(at[0], weight[1], {0, 2}, {0, 1});
  };
  check_like_each_element({random_leaves({{2, 3, 4}, {2, 5, 4}})}, two, two, {weight[1]});
  const Elements left = random_leaves(linalg_tokens), right = random_leaves({{3, 2}, {0, 2}, {5, 2}, {1, 2}});
  const NestedTensor x(left), y(right);
  const Tensor got = torch::tensordot(x, y, {0, 1}, {0, 1}),
               expected = torch::mm(torch::cat(left).t(), torch::cat(right));
  CHECK(got.allclose(expected));
  CHECK(torch::autograd::grad({got.square().sum()}, {left[0]})[0].allclose(
      torch::autograd::grad({expected.square().sum()}, {left[0]})[0]));
  CHECK_THROWS_WITH(
      torch::tensordot(x, y, {1}, {1}),
      ContainsSubstring("[nested_tensor.tensordot] expected static dimensions, or all ragged ones with the "
                        "batch, got (1) of elements"));
  CHECK_THROWS_WITH(torch::tensordot(x, y, {0, 1}, {1, 0}), ContainsSubstring("matmul multiplies within each element"));
  CHECK_THROWS_WITH(torch::tensordot(x, torch::ones({4, 5}, torch::kDouble), {0, 1}, {0, 1}),
                    ContainsSubstring("nested_like() packs a padded tensor"));
  CHECK_THROWS_WITH(torch::tensordot(torch::ones({2, 4}, torch::kDouble), x, {1}, {2}),
                    ContainsSubstring("expected the NestedTensor first"));
}

TEST_CASE("einsum: an ellipsis stands for the dimensions without a letter", "[nested]") {
  torch::manual_seed(5);
  const Elements weight = random_leaves({{4, 2}, {4}});
  for (const std::vector<Sizes>& shapes : {linalg_tokens, {{2, 3, 4}, {2, 5, 4}}, {{3, 2, 4}, {2, 5, 4}}}) {
    for (const std::string equation : {"...d,de->...e", "...d,de", "... d, d e -> ... e", "b...d,de->b...e"}) {
      INFO(equation);
      const std::string own = equation[0] == 'b' ? "...d,de->...e" : equation;
      check_like_each_element(
          {random_leaves(shapes)}, [&](const Elements& at) { return torch::einsum(equation, {at[0], weight[0]}); },
          [&](const Elements& at) { return torch::einsum(own, {at[0], weight[0]}); }, {weight[0]});
    }
    const auto scaled = [&](const Elements& at) { return torch::einsum("...d,...d->...d", {at[0], weight[1]}); };
    check_like_each_element({random_leaves(shapes)}, scaled, scaled, {weight[1]});
    const auto squares = [&](const Elements& at) { return torch::einsum("...d,...d->...", {at[0], at[0]}); };
    check_like_each_element({random_leaves(shapes)}, squares, squares);
  }
  const NestedTensor x(random_leaves(linalg_tokens));
  CHECK(torch::einsum("...d->d", {x}).allclose(x.concat().sum(0)));
  CHECK_THROWS_WITH(torch::einsum("abcd...,d->a", {x, weight[1]}),
                    ContainsSubstring("[nested_tensor.einsum] expected a letter for each"));
}

TEST_CASE("NestedTensor: searchsorted looks in one sequence, or in that of each element", "[nested]") {
  const std::vector<Tensor> numbers = {torch::tensor({1, 5, 9}), torch::empty({0}, torch::kLong), torch::tensor({4})};
  const std::vector<Tensor> sequences = {torch::tensor({2, 6}), torch::tensor({1}), torch::tensor({1, 4, 4, 8})};
  for (const bool right : {false, true}) {
    const NestedTensor one(torch::searchsorted(sequences[2], NestedTensor(numbers), false, right)),
        each(torch::searchsorted(NestedTensor(sequences), NestedTensor(numbers), false, right)),
        buckets(torch::bucketize(NestedTensor(numbers), sequences[2], false, right));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      CHECK(one[static_cast<std::int64_t>(i)].equal(torch::searchsorted(sequences[2], numbers[i], false, right)));
      CHECK(each[static_cast<std::int64_t>(i)].equal(torch::searchsorted(sequences[i], numbers[i], false, right)));
      CHECK(buckets[static_cast<std::int64_t>(i)].equal(torch::bucketize(numbers[i], sequences[2], false, right)));
    }
  }
  CHECK_THROWS_WITH(torch::searchsorted(torch::ones({3, 2}, torch::kLong), NestedTensor(numbers)),
                    ContainsSubstring("[nested_tensor.searchsorted] expected one sorted sequence, or a NestedTensor of "
                                      "them, got a tensor of shape (3, 2)"));
}

TEST_CASE("NestedTensor: stack in front of the batch says what joins batches", "[nested]") {
  const NestedTensor x(random_leaves(linalg_tokens));
  CHECK_THROWS_WITH(torch::stack({x, x}),
                    ContainsSubstring("a NestedTensor has one batch dimension; cat(tensors, 0) puts "
                                      "the elements of all into one"));
}

TEST_CASE("NestedTensor: linalg_norm and linalg_matrix_norm are those of each element", "[nested]") {
  torch::manual_seed(6);
  const std::vector<std::vector<Sizes>> batches = {{{3, 4}, {5, 4}, {1, 4}}, {{4, 3}, {4, 5}}, {{3, 2}, {2, 5}}};
  for (const auto& shapes : batches) {
    for (const double order : {1.0, -1.0, double(INFINITY), -double(INFINITY), 2.0, -2.0}) {
      for (const bool keepdim : {false, true}) {
        INFO("order " << order << (keepdim ? ", kept" : ""));
        const auto call = [&](const Elements& at) {
          return torch::linalg_matrix_norm(at[0], order, {-2, -1}, keepdim);
        };
        check_like_each_element({random_leaves(shapes)}, call, call);
      }
    }
    for (const std::string order : {"fro", "nuc"}) {
      const auto call = [&](const Elements& at) { return torch::linalg_matrix_norm(at[0], order); };
      check_like_each_element({random_leaves(shapes)}, call, call);
      const auto norm = [&](const Elements& at) {
        return torch::linalg_norm(at[0], order, torch::IntArrayRef({-2, -1}));
      };
      check_like_each_element({random_leaves(shapes)}, norm, norm);
    }
    for (const double order : {1.0, 2.0, 3.0, 0.0, double(INFINITY)}) {
      for (const std::int64_t dim : {-1, -2}) {
        const auto call = [&](const Elements& at) { return torch::linalg_norm(at[0], order, dim); };
        check_like_each_element({random_leaves(shapes)}, call, call);
      }
    }
    const auto rows = [&](const Elements& at) {
      return torch::linalg_norm(at[0], std::optional<c10::Scalar>(), -1, true);
    };
    check_like_each_element({random_leaves(shapes)}, rows, rows);
    const NestedTensor x(random_leaves(shapes));
    CHECK(torch::linalg_norm(x).allclose(x.concat().flatten().norm()));
    CHECK_THROWS_WITH(torch::linalg_norm(x, 1),
                      ContainsSubstring("[nested_tensor.linalg_norm] expected dimensions together with an order"));
    CHECK_THROWS_WITH(torch::linalg_matrix_norm(x, 3),
                      ContainsSubstring("expected the order 1, 2, inf, their negatives, 'fro' or 'nuc', got 3"));
  }
  // Matrices of each token: one call.
  const danling::NoNestedFallback forbidden;
  for (const double order : {1.0, -double(INFINITY), 2.0}) {
    const auto call = [&](const Elements& at) { return torch::linalg_matrix_norm(at[0], order); };
    check_like_each_element({random_leaves({{3, 2, 4}, {5, 2, 4}})}, call, call);
  }
}

TEST_CASE("NestedTensor: sums, means, variances and norms of complex values are LibTorch's", "[nested]") {
  torch::manual_seed(7);
  struct Complex {
    std::string name;
    std::function<Tensor(const Tensor&, std::int64_t dim)> call;
  };
  const std::vector<Complex> cases = {
      {"sum", [](const Tensor& x, std::int64_t dim) { return x.sum(dim); }},
      {"mean", [](const Tensor& x, std::int64_t dim) { return x.mean(dim); }},
      {"mean, kept", [](const Tensor& x, std::int64_t dim) { return x.mean(dim, true); }},
      {"conjugate mean", [](const Tensor& x, std::int64_t dim) { return x.conj_physical().mean(dim); }},
      {"var", [](const Tensor& x, std::int64_t dim) { return x.var(dim, false); }},
      {"std", [](const Tensor& x, std::int64_t dim) { return x.std(torch::IntArrayRef(dim), 1); }},
      {"norm", [](const Tensor& x, std::int64_t dim) { return torch::linalg_vector_norm(x, 2, dim); }},
      {"norm of 1", [](const Tensor& x, std::int64_t dim) { return torch::linalg_vector_norm(x, 1, dim); }},
      {"norm of 3", [](const Tensor& x, std::int64_t dim) { return x.norm(3, dim); }},
      {"norm of infinity",
       [](const Tensor& x, std::int64_t dim) { return torch::linalg_vector_norm(x, INFINITY, dim); }},
  };
  for (const auto type : {torch::kComplexDouble, torch::kComplexFloat}) {
    for (const std::vector<Sizes>& shapes :
         {std::vector<Sizes>{{3, 4}, {5, 4}, {2, 4}}, {{4, 3}, {4, 5}}, {{3, 2}, {2, 5}}}) {
      for (const Complex& one : cases) {
        for (const std::int64_t dim : {-1, -2}) {
          INFO(one.name << " over " << dim << ", " << type);
          const Elements leaves = random_leaves(shapes, type);
          const NestedTensor x(leaves);
          const Tensor got = one.call(x, dim);
          const Elements parts = NestedTensor::is_nested(got) ? NestedTensor(got).elements() : got.unbind(0);
          Tensor loss = torch::zeros({}, torch::kDouble), expected = loss;
          for (std::size_t i = 0; i < leaves.size(); ++i) {
            const Tensor own = one.call(leaves[i], dim);
            REQUIRE(parts[i].sizes() == own.sizes());
            CHECK(parts[i].scalar_type() == own.scalar_type());
            CHECK(torch::allclose(parts[i], own, 1e-5, 1e-6));
            loss = loss + parts[i].abs().square().sum().to(torch::kDouble);
            expected = expected + own.abs().square().sum().to(torch::kDouble);
          }
          const auto gradients = torch::autograd::grad({loss}, leaves),
                     wanted = torch::autograd::grad({expected}, leaves);
          for (std::size_t i = 0; i < leaves.size(); ++i) {
            CHECK(torch::allclose(gradients[i], wanted[i], 1e-4, 1e-5));
          }
        }
      }
      const NestedTensor x(random_leaves(shapes, type));
      CHECK(torch::allclose(x.mean(), x.concat().mean()));
      CHECK(torch::allclose(x.var(), x.concat().var()));
    }
  }
  CHECK_THROWS_WITH(NestedTensor({torch::ones({2}, torch::kLong)}).mean(1),
                    ContainsSubstring("[nested_tensor.mean] expected floating values, got long"));
}

}  // namespace
}  // namespace nested_linalg
