// Comparisons, conditions and replacements of nested tensors.
#include <danling/core/error.hpp>

#include <nested/per_element.hpp>

namespace nested_comparison {
namespace {

using danling::NestedTensor;
using per_element::Layout;
using per_element::Results;
using torch::Tensor;

struct Elementwise {
  std::string name;
  std::function<Tensor(const Tensor&)> call;
};

TEST_CASE("NestedTensor: comparisons and replacements are those of each value", "[nested]") {
  const std::vector<Elementwise> all = {
      {"eq", [](const Tensor& x) { return x.round() == 1; }},
      {"ne", [](const Tensor& x) { return x.round() != 1; }},
      {"lt", [](const Tensor& x) { return x < 1; }},
      {"le", [](const Tensor& x) { return x <= x * 2; }},
      {"gt", [](const Tensor& x) { return x > x.square(); }},
      {"ge", [](const Tensor& x) { return x.ge(0.5); }},
      {"greater", [](const Tensor& x) { return torch::greater(x, 0.5); }},
      {"isclose", [](const Tensor& x) { return torch::isclose(x, x.round(), 0.1, 0.1); }},
      {"isnan", [](const Tensor& x) { return torch::isnan(x.log()); }},
      {"isinf", [](const Tensor& x) { return torch::isinf(x / x.relu()); }},
      {"isfinite", [](const Tensor& x) { return torch::isfinite(x / x.relu()); }},
      {"signbit", [](const Tensor& x) { return torch::signbit(x); }},
      {"logical_and", [](const Tensor& x) { return (x > 0).logical_and(x < 2); }},
      {"logical_or", [](const Tensor& x) { return (x > 2).logical_or(x < 0); }},
      {"logical_xor", [](const Tensor& x) { return (x > 0).logical_xor(x < 2); }},
      {"logical_not", [](const Tensor& x) { return (x > 0).logical_not(); }},
      {"bitwise_and", [](const Tensor& x) { return (x > 0) & (x < 2); }},
      {"where", [](const Tensor& x) { return torch::where(x > 0, x, x * 2); }},
      {"where, scalar", [](const Tensor& x) { return torch::where(x > 0, x, 7.0); }},
      {"where, scalar first", [](const Tensor& x) { return torch::where(x > 0, 7.0, x); }},
      {"where, two scalars", [](const Tensor& x) { return torch::where(x > 0, 7.0, 8.0); }},
      {"where, plain", [](const Tensor& x) { return torch::where(x > 0, x, torch::ones({})); }},
      {"masked_fill", [](const Tensor& x) { return x.masked_fill(x > 0, 3); }},
      {"masked_fill, tensor", [](const Tensor& x) { return x.masked_fill(x > 0, torch::tensor(3.F)); }},
      {"nan_to_num", [](const Tensor& x) { return x.relu().log().nan_to_num(1, 2, -3); }},
      {"clamp", [](const Tensor& x) { return x.clamp(-1, 1); }},
      {"clamp, tensors", [](const Tensor& x) { return torch::clamp(x, x * 0.5, torch::ones({})); }},
      {"clamp_min", [](const Tensor& x) { return x.clamp_min(0.2); }},
      {"clamp_max", [](const Tensor& x) { return x.clamp_max(torch::tensor(0.2F)); }},
      {"maximum", [](const Tensor& x) { return torch::maximum(x, x.square()); }},
      {"minimum", [](const Tensor& x) { return torch::minimum(x, x.square()); }},
      {"max of two", [](const Tensor& x) { return torch::max(x, -x); }},
      {"min of two", [](const Tensor& x) { return torch::min(x, -x); }},
      {"fmod", [](const Tensor& x) { return x.fmod(1.5); }},
      {"lerp", [](const Tensor& x) { return x.lerp(x.square(), 0.3); }},
      {"addcmul", [](const Tensor& x) { return x.addcmul(x, x, 0.3); }},
      {"heaviside", [](const Tensor& x) { return torch::heaviside(x.detach(), torch::ones({})); }},
      {"copysign", [](const Tensor& x) { return x.copysign(-1); }},
  };
  for (const Elementwise& operation : all) {
    for (const Layout& layout : per_element::layouts()) {
      INFO(operation.name);
      per_element::check_same(
          layout, [&](const Tensor& x) { return Results{operation.call(x)}; },
          [&](const Tensor& x) { return Results{operation.call(x)}; });
    }
  }
}

TEST_CASE("NestedTensor: plain conditions and masks count where elements have values", "[nested]") {
  for (const Layout& layout : per_element::layouts()) {
    INFO(layout.name);
    const NestedTensor x = layout.nested();
    const Tensor mask = x.tensor() > 0;
    CHECK(NestedTensor(torch::where(mask, x, 0.0)).tensor().equal(torch::where(mask, x.tensor(), 0.0)));
    CHECK(NestedTensor(torch::where(x > 0, x, x.tensor() * 2))
              .concat()
              .equal(NestedTensor(torch::where(x > 0, x, x * 2)).concat()));
    CHECK(NestedTensor(x.masked_fill(mask, 5)).concat().equal(NestedTensor(x.masked_fill(x > 0, 5)).concat()));
    CHECK(NestedTensor(x == x.tensor()).concat().all().item<bool>());
  }
}

TEST_CASE("NestedTensor: reductions with keepdim broadcast back to the elements", "[nested]") {
  for (const Layout& layout : per_element::layouts()) {
    for (std::int64_t dim = 0; dim < layout.rank(); ++dim) {
      if (dim == layout.batch_dim()) {
        continue;
      }
      INFO("along " << dim);
      const auto centered = [](const Tensor& x, std::int64_t along) {
        return Results{x - x.mean(along, true), x.sum(along, true) * x};
      };
      per_element::check_same(
          layout, [&](const Tensor& x) { return centered(x, dim); },
          [&](const Tensor& x) { return centered(x, layout.element_dim(dim)); });
    }
  }
}

TEST_CASE("NestedTensor: operators on all values give plain results", "[nested]") {
  const Layout& layout = per_element::layouts().front();
  const NestedTensor x = layout.nested(), counts = NestedTensor(layout.nested().abs().to(torch::kLong));
  const Tensor all = torch::cat(layout.elements());
  CHECK(torch::dist(x, x * 2).allclose(torch::dist(all, all * 2)));
  CHECK(torch::histc(x, 5).equal(torch::histc(all, 5)));
  CHECK(torch::bincount(counts).equal(torch::bincount(counts.concat().flatten())));
  CHECK(NestedTensor(torch::bucketize(x, torch::tensor({-1.F, 0.F, 1.F})))
            .concat()
            .equal(torch::bucketize(all, torch::tensor({-1.F, 0.F, 1.F}))));
  CHECK(NestedTensor(torch::isin(x.round(), torch::tensor({1.F, 2.F})))
            .concat()
            .equal(torch::isin(all.round(), torch::tensor({1.F, 2.F}))));
  const NestedTensor classes({torch::tensor({0, 2}), torch::tensor({1})});
  const NestedTensor hot(torch::one_hot(classes.to(torch::kLong), 3));
  CHECK(hot.concat().equal(torch::one_hot(classes.concat().to(torch::kLong), 3)));
  CHECK(hot.shapes()[0] == std::vector<std::int64_t>{2, 3});
}

TEST_CASE("NestedTensor: equal and allclose compare shapes and values", "[nested]") {
  for (const Layout& layout : per_element::layouts()) {
    INFO(layout.name);
    const NestedTensor x = layout.nested(), y = layout.nested();
    CHECK(torch::equal(x, y));
    CHECK(torch::allclose(x, NestedTensor(x + 1e-9)));
    CHECK_FALSE(torch::equal(x, x + 1));
    CHECK_FALSE(torch::allclose(x, x + 1));
    CHECK(torch::equal(x, y.tensor()));
    CHECK(torch::equal(y.tensor(), x));
    CHECK(torch::allclose(x, y.tensor()));
    CHECK_FALSE(torch::equal(x, torch::zeros({1, 2, 3, 4, 5})));
  }
  const NestedTensor a({torch::ones({2, 3}), torch::ones({1, 3})}), b({torch::ones({1, 3}), torch::ones({2, 3})});
  CHECK_FALSE(torch::equal(a, b));
  CHECK_FALSE(torch::allclose(a, b));
  CHECK_THROWS_WITH(a == b, ContainsSubstring("[nested_tensor.eq] expected NestedTensors of the same ragged sizes, got "
                                              "(2, 3), (1, 3) and (1, 3), (2, 3)"));
}

}  // namespace
}  // namespace nested_comparison
