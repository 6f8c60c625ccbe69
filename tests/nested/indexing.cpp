// Reading and writing nested tensors by indices and masks.
#include <danling/core/error.hpp>

#include "nested/nested_tests.hpp"

namespace nested_indexing {
namespace {

using danling::NestedTensor;
using nested_tests::check_same;
using nested_tests::random_elements;
using nested_tests::Sizes;
using torch::Tensor;
using torch::indexing::Ellipsis;
using torch::indexing::Slice;

const std::vector<Sizes> index_tokens = {{3, 8}, {0, 8}, {5, 8}, {1, 8}}, index_lists = {{3}, {0}, {5}},
                         index_images = {{3, 4, 2}, {5, 2, 2}, {1, 3, 2}};

std::vector<Tensor> parts_of(const Tensor& nested) { return NestedTensor(nested).elements(); }

TEST_CASE("NestedTensor: indices of the batch give elements", "[nested]") {
  using Index = at::indexing::TensorIndex;
  struct BatchCase {
    Index index;
    std::vector<std::size_t> elements;
  };
  const std::vector<BatchCase> cases = {
      {Slice(), {0, 1, 2, 3}},
      {Slice(1, 3), {1, 2}},
      {Slice(torch::indexing::None, torch::indexing::None, 2), {0, 2}},
      {Slice(-1), {3}},
      {Slice(3, 1), {}},
      {torch::tensor({2, 0}), {2, 0}},
      {torch::tensor({-1, -1, 2}), {3, 3, 2}},
      {torch::tensor({true, false, false, true}), {0, 3}},
      {torch::tensor({1, 2}, torch::kInt), {1, 2}},
      {Ellipsis, {0, 1, 2, 3}},
  };
  for (const bool batch_first : {true, false}) {
    for (const BatchCase& one : cases) {
      if (!batch_first && one.index.is_ellipsis()) {
        continue;
      }
      check_same(
          random_elements(index_tokens), {.batch_first = batch_first},
          [&](const NestedTensor& x) {
            return parts_of(batch_first ? x.index({one.index}) : x.index({Slice(), one.index}));
          },
          [&](const std::vector<Tensor>& all) {
            std::vector<Tensor> out;
            for (const std::size_t element : one.elements) {
              out.push_back(all[element]);
            }
            return out;
          });
    }
  }
  check_same(
      random_elements(index_tokens), {},
      [](const NestedTensor& x) { return parts_of(x.index({Slice(2), Slice(1), 3})); },
      [](const std::vector<Tensor>& all) {
        return std::vector<Tensor>{all[2].slice(0, 1).select(1, 3), all[3].slice(0, 1).select(1, 3)};
      });
  const NestedTensor x(random_elements(index_tokens));
  CHECK(x[2].equal(x.elements()[2]));
  CHECK(x[-1].equal(x.elements()[3]));
  CHECK(x.select(0, 2).equal(x[2]));
  CHECK(x.index({2, 1}).equal(x[2][1]));
  CHECK(x.index({torch::tensor(2)}).equal(x[2]));
  CHECK_THROWS_WITH(x.index({torch::tensor({4})}), ContainsSubstring("expected indices from -4 to 3, got 4"));
  CHECK_THROWS_WITH(x[4], ContainsSubstring("expected an index from -4 to 3, got 4"));
}

TEST_CASE("NestedTensor: masks choose values of each sequence", "[nested]") {
  for (const auto& shapes : {index_tokens, index_lists, index_images, std::vector<Sizes>{{4, 3}, {4, 0}, {4, 5}}}) {
    const auto expected = [](const std::vector<Tensor>& all) {
      std::vector<Tensor> out;
      for (const Tensor& part : all) {
        out.push_back(part.index({part > 0}));
      }
      return out;
    };
    check_same(random_elements(shapes), {}, [](const NestedTensor& x) { return parts_of(x.index({x > 0})); }, expected);
    check_same(
        random_elements(shapes), {}, [](const NestedTensor& x) { return parts_of(x.index({x.tensor() > 0})); },
        expected);
    check_same(
        random_elements(shapes), {}, [](const NestedTensor& x) { return parts_of(x.masked_select(x > 0)); }, expected);
  }
  // A mask of tokens keeps their features.
  check_same(
      random_elements(index_tokens), {},
      [](const NestedTensor& x) { return parts_of(x.index({x.detach().select(2, 0) > 0})); },
      [](const std::vector<Tensor>& all) {
        std::vector<Tensor> out;
        for (const Tensor& part : all) {
          out.push_back(part.index({part.detach().select(1, 0) > 0}));
        }
        return out;
      });
}

TEST_CASE("NestedTensor: indices of static dimensions and gather keep the sequences", "[nested]") {
  const Tensor columns = torch::tensor({5, 0, 5});
  nested_tests::check_cases({
      {"index", index_tokens, [=](const Tensor& x) { return x.index({Ellipsis, columns}); },
       [=](const Tensor& x) { return x.index({Slice(), columns}); }},
      {"index of two dimensions", index_tokens,
       [=](const Tensor& x) { return x.index({Ellipsis, columns.view({3, 1})}); },
       [=](const Tensor& x) { return x.index({Slice(), columns.view({3, 1})}); }},
      {"mask", index_images, [](const Tensor& x) { return x.index({Ellipsis, torch::tensor({false, true})}); },
       [](const Tensor& x) { return x.index({Ellipsis, torch::tensor({false, true})}); }},
      {"positions",
       {{3, 2}, {4, 2}},
       [](const Tensor& x) { return x.index({Slice(), torch::tensor({2, -1})}); },
       [](const Tensor& x) { return x.index({torch::tensor({2, -1})}); }},
  });
  const auto index_of = [](const Tensor& part, std::int64_t size) {
    return torch::arange(part.numel()).view(part.sizes()).remainder(std::max<std::int64_t>(size, 1));
  };
  for (const std::int64_t dim : {0, 1}) {
    check_same(
        random_elements(index_tokens), {},
        [&](const NestedTensor& x) {
          std::vector<Tensor> indices;
          for (const Tensor& part : x.elements()) {
            indices.push_back(index_of(part, part.size(dim)));
          }
          return parts_of(x.gather(dim + 1, NestedTensor(indices)));
        },
        [&](const std::vector<Tensor>& all) {
          std::vector<Tensor> out;
          for (const Tensor& part : all) {
            out.push_back(part.gather(dim, index_of(part, part.size(dim))));
          }
          return out;
        });
  }
  const NestedTensor x(random_elements(index_images));
  CHECK(
      x.take(torch::tensor({0, 30})).equal(torch::cat({x[0].flatten(), x[1].flatten()}).take(torch::tensor({0, 30}))));
}

TEST_CASE("NestedTensor: what is written by an index stands in the elements", "[nested]") {
  using Write = std::function<void(NestedTensor&)>;
  using Check = std::function<void(std::vector<Tensor>&)>;
  struct WriteCase {
    std::string name;
    Write write;
    Check check;
  };
  const Tensor row = torch::arange(8, torch::kDouble);
  const std::vector<WriteCase> cases = {
      {"element", [](NestedTensor& x) { x[2].fill_(3); }, [](auto& e) { e[2].fill_(3); }},
      {"element by select", [](NestedTensor& x) { x.select(0, 0).zero_(); }, [](auto& e) { e[0].zero_(); }},
      {"element by index_put_", [](NestedTensor& x) { x.index_put_({2}, 7); }, [](auto& e) { e[2].fill_(7); }},
      {"part of an element", [](NestedTensor& x) { x.index_put_({2, Slice(1, 3)}, 7); },
       [](auto& e) { e[2].slice(0, 1, 3).fill_(7); }},
      {"elements", [](NestedTensor& x) { x.index_put_({Slice(0, 3)}, 5); },
       [](auto& e) { e[0].fill_(5), e[2].fill_(5); }},
      {"every other element", [](NestedTensor& x) { x.index_put_({Slice(0, 4, 2)}, 5); },
       [](auto& e) { e[0].fill_(5), e[2].fill_(5); }},
      {"tokens", [](NestedTensor& x) { x.index_put_({Slice(), Slice(1)}, 5); },
       [](auto& e) {
         for (Tensor& part : e) {
           part.slice(0, 1).fill_(5);
         }
       }},
      {"last tokens", [=](NestedTensor& x) { x.index_put_({Slice(), Slice(-1)}, row); },
       [=](auto& e) {
         for (Tensor& part : e) {
           part.slice(0, -1).copy_(row.expand({std::min<std::int64_t>(part.size(0), 1), 8}));
         }
       }},
      {"tokens of another tensor",
       [](NestedTensor& x) {
         x.index_put_({Slice(), Slice(1)}, NestedTensor(x.clone()).index({Slice(), Slice(1)}).mul(3));
       },
       [](auto& e) {
         for (Tensor& part : e) {
           part.slice(0, 1).mul_(3);
         }
       }},
      {"features", [](NestedTensor& x) { x.index_put_({Ellipsis, Slice(2, 4)}, 5); },
       [](auto& e) {
         for (Tensor& part : e) {
           part.slice(1, 2, 4).fill_(5);
         }
       }},
      {"one feature", [](NestedTensor& x) { x.index_put_({Ellipsis, 3}, 5); },
       [](auto& e) {
         for (Tensor& part : e) {
           part.select(1, 3).fill_(5);
         }
       }},
      {"chosen features",
       [](NestedTensor& x) { x.index_put_({Ellipsis, torch::tensor({3, 4})}, torch::tensor(5.0, torch::kDouble)); },
       [](auto& e) {
         for (Tensor& part : e) {
           part.slice(1, 3, 5).fill_(5);
         }
       }},
      {"nested mask", [](NestedTensor& x) { x.index_put_({x > 0}, 0); },
       [](auto& e) {
         for (Tensor& part : e) {
           part.masked_fill_(part > 0, 0);
         }
       }},
      {"padded mask", [](NestedTensor& x) { x.index_put_({x.tensor() > 0}, 0); },
       [](auto& e) {
         for (Tensor& part : e) {
           part.masked_fill_(part > 0, 0);
         }
       }},
      {"listed elements", [](NestedTensor& x) { x.index_put_({torch::tensor({3, 0})}, 1); },
       [](auto& e) { e[3].fill_(1), e[0].fill_(1); }},
      {"masked elements", [](NestedTensor& x) { x.index_put_({torch::tensor({false, false, true, true})}, 1); },
       [](auto& e) { e[3].fill_(1), e[2].fill_(1); }},
      {"a slice changed later", [](NestedTensor& x) { x.index({Slice(), Slice(1)}).mul_(2); },
       [](auto& e) {
         for (Tensor& part : e) {
           part.slice(0, 1).mul_(2);
         }
       }},
      {"set: element of another length", [](NestedTensor& x) { x.set(1, torch::ones({2, 8})); },
       [](auto& e) { e[1] = torch::ones({2, 8}, torch::kDouble); }},
      {"set: element", [](NestedTensor& x) { x.set(-1, torch::ones({1, 8})); }, [](auto& e) { e[3].fill_(1); }},
      {"set: first tokens", [=](NestedTensor& x) { x.set({Slice(2, 4), 0}, row); },
       [=](auto& e) { e[2][0].copy_(row), e[3][0].copy_(row); }},
      {"set: elements",
       [](NestedTensor& x) { x.set({Slice(0, 2)}, NestedTensor({torch::ones({4, 8}), torch::ones({1, 8})})); },
       [](auto& e) { e[0] = torch::ones({4, 8}, torch::kDouble), e[1] = torch::ones({1, 8}, torch::kDouble); }},
  };
  for (const WriteCase& one : cases) {
    INFO(one.name);
    const auto elements = random_elements(index_tokens);
    NestedTensor x(elements);
    std::vector<Tensor> expected;
    for (const Tensor& element : elements) {
      expected.push_back(element.clone());
    }
    one.write(x);
    one.check(expected);
    nested_tests::check_equal(x.elements(), expected, 0);
  }
}

TEST_CASE("NestedTensor: gradients flow through what an index writes", "[nested]") {
  const Tensor weight = torch::ones({8}, torch::kDouble).requires_grad_();
  const NestedTensor x(random_elements(index_tokens));
  NestedTensor y(x * weight);
  y.index_put_({Slice(), Slice(1)}, 0);
  y.concat().sum().backward();
  Tensor expected = torch::zeros({8}, torch::kDouble);
  for (const Tensor& part : x.elements()) {
    expected += part.slice(0, 0, 1).sum(0);
  }
  CHECK(torch::allclose(weight.grad(), expected));
}

TEST_CASE("NestedTensor: indices without a meaning are refused with the shapes", "[nested]") {
  NestedTensor x(random_elements(index_tokens));
  CHECK_THROWS_WITH(x.index({torch::tensor({true, false})}),
                    ContainsSubstring("expected a mask of the batch, 4, got one of 2"));
  CHECK_THROWS_WITH(x.index({torch::ones({3, 5}, torch::kBool)}),
                    ContainsSubstring("expected a mask of the padded shape (4, 5, 8)"));
  const Tensor zero = torch::tensor({0}), mask = torch::tensor({true, false, true, true});
  CHECK_THROWS_WITH(x.index({mask, zero}), ContainsSubstring("index each of elements()"));
  CHECK_THROWS_WITH(x.index_put_({mask, zero}, 1.0), ContainsSubstring("NestedTensor::set"));
  CHECK_THROWS_WITH(x.set(4, torch::ones({1, 8})),
                    ContainsSubstring("[nested_tensor.set] expected an index from -4 to 3, got 4"));
  CHECK_THROWS_WITH(x.set(0, torch::ones({8})),
                    ContainsSubstring("expected an element of 2 dimensions, got one of shape (8)"));
}

}  // namespace
}  // namespace nested_indexing
