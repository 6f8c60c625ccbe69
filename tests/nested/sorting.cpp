// Scans, sorts, extremes with indices and products of nested tensors: those of each element.
#include <danling/core/error.hpp>

#include <nested/per_element.hpp>

namespace nested_sorting {
namespace {

using danling::NestedTensor;
using per_element::Layout;
using per_element::Results;
using torch::Tensor;

template <class Pair>
Results both(const Pair& pair) {
  return {std::get<0>(pair), std::get<1>(pair)};
}

struct AlongDim {
  std::string name;
  std::function<Results(const Tensor&, std::int64_t)> call;
};

const std::vector<AlongDim>& operators_along() {
  static const std::vector<AlongDim> all = {
      {"cumsum", [](const Tensor& x, auto d) { return Results{x.cumsum(d)}; }},
      {"cumprod", [](const Tensor& x, auto d) { return Results{x.cumprod(d)}; }},
      {"cummax", [](const Tensor& x, auto d) { return both(x.cummax(d)); }},
      {"cummin", [](const Tensor& x, auto d) { return both(x.cummin(d)); }},
      {"logcumsumexp", [](const Tensor& x, auto d) { return Results{x.logcumsumexp(d)}; }},
      {"sort", [](const Tensor& x, auto d) { return both(x.sort(d)); }},
      {"sort, descending", [](const Tensor& x, auto d) { return both(x.sort(d, true)); }},
      {"argsort", [](const Tensor& x, auto d) { return Results{x.argsort(d)}; }},
      {"max", [](const Tensor& x, auto d) { return both(x.max(d)); }},
      {"min", [](const Tensor& x, auto d) { return both(x.min(d)); }},
      {"max, kept", [](const Tensor& x, auto d) { return both(x.max(d, true)); }},
      {"argmax", [](const Tensor& x, auto d) { return Results{x.argmax(d)}; }},
      {"argmin, kept", [](const Tensor& x, auto d) { return Results{x.argmin(d, true)}; }},
      {"prod", [](const Tensor& x, auto d) { return Results{x.prod(d)}; }},
      {"prod, kept", [](const Tensor& x, auto d) { return Results{x.prod(d, true)}; }},
      {"topk", [](const Tensor& x, auto d) { return both(x.topk(1, d)); }},
      {"topk, smallest", [](const Tensor& x, auto d) { return both(x.topk(1, d, false)); }},
      {"median", [](const Tensor& x, auto d) { return both(x.median(d)); }},
      {"median, kept", [](const Tensor& x, auto d) { return both(x.median(d, true)); }},
      {"kthvalue", [](const Tensor& x, auto d) { return both(x.kthvalue(1, d)); }},
      {"quantile", [](const Tensor& x, auto d) { return Results{x.quantile(0.3, d, true)}; }},
      {"nanmedian", [](const Tensor& x, auto d) { return both(x.nanmedian(d)); }},
      {"mode", [](const Tensor& x, auto d) { return both(x.round().mode(d)); }},
      {"softmax", [](const Tensor& x, auto d) { return Results{x.softmax(d)}; }},
      {"softmax in double", [](const Tensor& x, auto d) { return Results{x.softmax(d, torch::kDouble)}; }},
      {"diff", [](const Tensor& x, auto d) { return Results{torch::diff(x, 1, d)}; }},
      {"cosine_similarity", [](const Tensor& x, auto d) { return Results{torch::cosine_similarity(x, x.exp(), d)}; }},
      {"normalize",
       [](const Tensor& x, auto d) {
         return Results{torch::nn::functional::normalize(x, torch::nn::functional::NormalizeFuncOptions().dim(d))};
       }},
      {"log_softmax", [](const Tensor& x, auto d) { return Results{x.log_softmax(d)}; }},
  };
  return all;
}

TEST_CASE("NestedTensor: operators along a dimension are those of each element", "[nested]") {
  for (const AlongDim& along : operators_along()) {
    for (const Layout& layout : per_element::layouts()) {
      for (std::int64_t dim = -layout.rank(); dim < layout.rank(); ++dim) {
        if (dim == layout.batch_dim() || dim + layout.rank() == layout.batch_dim()) {
          continue;
        }
        INFO(along.name << " along " << dim);
        per_element::check_same(
            layout, [&](const Tensor& x) { return along.call(x, dim); },
            [&](const Tensor& x) { return along.call(x, layout.element_dim(dim)); });
      }
    }
  }
}

TEST_CASE("NestedTensor: operators along a dimension have the padded result's sizes, also sequence first", "[nested]") {
  for (const AlongDim& along : operators_along()) {
    for (const Layout& layout : per_element::layouts()) {
      const NestedTensor x = layout.nested();
      for (std::int64_t dim = 0; dim < layout.rank(); ++dim) {
        if (dim == layout.batch_dim()) {
          continue;
        }
        INFO(layout.name << ", " << along.name << " along " << dim);
        const Results got = along.call(x, dim), padded = along.call(x.tensor(), dim);
        for (std::size_t at = 0; at < got.size(); ++at) {
          CHECK(got[at].sizes() == padded[at].sizes());
        }
      }
    }
  }
}

TEST_CASE("NestedTensor: operators along long sequences are those of each element", "[nested]") {
  const danling::NoNestedFallback forbidden;
  const Layout layout = {"long", {{4000, 3}, {2000, 3}}};
  for (const AlongDim& along : operators_along()) {
    if (along.name.starts_with("cumprod") || along.name.starts_with("prod") || along.name.starts_with("median") ||
        along.name == "kthvalue" || along.name == "mode" || along.name == "quantile" || along.name == "nanmedian" ||
        along.name == "diff") {
      continue;  // products that overflow, and those that are called per element
    }
    INFO(along.name);
    per_element::check_same(
        layout, [&](const Tensor& x) { return along.call(x, 1); }, [&](const Tensor& x) { return along.call(x, 0); },
        torch::kDouble, 1e-8);
  }
  const Tensor all = torch::cat(layout.elements());
  CHECK(layout.nested().sum(1)[0].allclose(all.narrow(0, 0, 4000).to(torch::kDouble).sum(0).to(torch::kFloat)));
}

TEST_CASE("NestedTensor: sorts along sequences hold for the limits of each type", "[nested]") {
  const auto long_max = std::numeric_limits<std::int64_t>::max(), long_min = std::numeric_limits<std::int64_t>::min();
  const std::vector<std::vector<Tensor>> batches = {
      {torch::tensor({long_max, std::int64_t{3}}), torch::tensor({long_min, long_max, std::int64_t{0}, long_max})},
      {torch::tensor({NAN, -INFINITY}), torch::tensor({INFINITY, NAN, 1.F, -INFINITY, NAN})},
      {torch::tensor({true, false}), torch::tensor({true, true, false})},
      {torch::tensor({255, 0}, torch::kByte), torch::tensor({1, 255, 0}, torch::kByte)}};
  for (const auto& parts : batches) {
    for (const bool descending : {false, true}) {
      const NestedTensor x(parts);
      const auto [values, indices] = x.sort(1, descending);
      const auto [top, places] = x.topk(2, 1, descending);
      const NestedTensor sorted(values), sorted_indices(indices), first(top);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto [expected, expected_indices] = torch::sort(parts[i], true, 0, descending);
        CHECK(torch::allclose(sorted.elements()[i].to(torch::kDouble), expected.to(torch::kDouble), 0, 0, true));
        CHECK(sorted_indices.elements()[i].equal(expected_indices));
        CHECK(torch::allclose(first.elements()[i].to(torch::kDouble), expected.narrow(0, 0, 2).to(torch::kDouble), 0, 0,
                              true));
      }
    }
  }
  const NestedTensor x({torch::tensor({long_max, long_max}), torch::tensor({long_max, long_min, std::int64_t{1}})});
  CHECK(std::get<0>(x.min(1)).equal(torch::tensor({long_max, long_min})));
  CHECK(std::get<0>(x.max(1)).equal(torch::tensor({long_max, long_max})));
  CHECK(x.argmin(1).equal(torch::tensor({0, 1}, torch::kLong)));
}

TEST_CASE("NestedTensor: indices without a dimension count in each element", "[nested]") {
  for (const Layout& layout : per_element::layouts()) {
    per_element::check_same(
        layout, [](const Tensor& x) { return Results{x.argmax()}; },
        [](const Tensor& x) { return Results{x.argmax()}; });
    per_element::check_same(
        layout, [&](const Tensor& x) { return both(x.max(layout.batch_dim())); },
        [](const Tensor& x) { return both(x.flatten().max(0)); });
  }
}

TEST_CASE("NestedTensor: empty sequences stay empty in scans and sorts, and a median has none", "[nested]") {
  const NestedTensor x({torch::randn({2, 3}), torch::randn({0, 3})});
  CHECK(NestedTensor(x.cumsum(1)).shapes() == x.shapes());
  CHECK(NestedTensor(std::get<0>(x.sort(1))).shapes() == x.shapes());
  CHECK(NestedTensor(x.softmax(1)).shapes() == x.shapes());
  CHECK(NestedTensor(x.softmax(1)).elements()[0].allclose(x.elements()[0].softmax(0)));
  CHECK_THROWS_WITH(x.topk(1, 1), ContainsSubstring("[nested_tensor.topk] expected at least 1 values in each sequence, "
                                                    "got 0 in element 1"));
}

TEST_CASE("NestedTensor: no order goes across the batch", "[nested]") {
  const NestedTensor x({torch::randn({2, 3}), torch::randn({4, 3})});
  CHECK_THROWS_WITH(x.softmax(0), ContainsSubstring("[nested_tensor.softmax] expected a dimension of the elements "
                                                    "(2, 3), (4, 3), got that of the batch"));
  CHECK_THROWS_WITH(x.cumsum(0), ContainsSubstring("[nested_tensor.cumsum] expected a dimension of the elements"));
  CHECK_THROWS_WITH(x.sort(0), ContainsSubstring("[nested_tensor.sort] expected a dimension of the elements"));
}

TEST_CASE("NestedTensor: softmax of a sequence is stable and sums to one", "[nested]") {
  const NestedTensor x({torch::tensor({1000.F, 1000.F}), torch::tensor({-1000.F, 0.F, -1000.F})});
  CHECK(NestedTensor(x.softmax(1)).concat().equal(torch::tensor({.5F, .5F, 0.F, 1.F, 0.F})));
  const NestedTensor masked({torch::tensor({-INFINITY, 2.F}), torch::tensor({0.F})}, {.requires_grad = true});
  NestedTensor(masked.softmax(1)).concat().square().sum().backward();
  CHECK_FALSE(NestedTensor(masked.grad()).concat().isnan().any().item<bool>());
  for (const auto type : {torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    for (const Layout& layout : per_element::layouts()) {
      per_element::check_same(
          layout, [](const Tensor& y) { return Results{y.softmax(-1)}; },
          [](const Tensor& y) { return Results{y.softmax(-1)}; }, type, type == torch::kDouble ? 1e-9 : 2e-2);
    }
  }
}

TEST_CASE("NestedTensor: reductions and softmax of sequences have second derivatives", "[nested]") {
  const auto parts = per_element::layouts().front().elements(torch::kDouble);
  const std::vector<std::function<Tensor(const Tensor&)>> functions = {
      [](const Tensor& x) { return x.sum(-2); },         [](const Tensor& x) { return x.softmax(-2); },
      [](const Tensor& x) { return x.log_softmax(-2); }, [](const Tensor& x) { return x.logsumexp(-2); },
      [](const Tensor& x) { return x.var(-2, false); },  [](const Tensor& x) { return x.norm(2, -2); },
      [](const Tensor& x) { return x.amax(-2); }};
  for (std::size_t which = 0; which < functions.size(); ++which) {
    INFO("function " << which);
    const auto second = [&](const Tensor& x, const Tensor& leaf) {
      const Tensor first =
          torch::autograd::grad({per_element::loss_of(functions[which](x))}, {leaf}, {}, true, true)[0];
      per_element::loss_of(first).backward();
      return leaf.grad();
    };
    const Tensor leaf = torch::cat(parts).requires_grad_();
    std::vector<std::vector<std::int64_t>> shapes;
    for (const Tensor& part : parts) {
      shapes.push_back(part.sizes().vec());
    }
    const Tensor got = second(NestedTensor::from_concatenated(leaf, shapes), leaf);
    std::vector<Tensor> expected;
    for (const Tensor& part : parts) {
      const Tensor own = part.clone().requires_grad_();
      expected.push_back(second(own, own));
    }
    CHECK(torch::allclose(got, torch::cat(expected)));
  }
}

}  // namespace
}  // namespace nested_sorting
