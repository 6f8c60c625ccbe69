// Reductions of nested tensors: values and gradients of each element by itself, for every dimension of every layout.
#include <atomic>
#include <thread>

#include <danling/core/error.hpp>

#include <nested/per_element.hpp>

#include "tensors/nested/segment_loops.hpp"

namespace nested_reductions {
namespace {

using danling::NestedTensor;
using per_element::Layout;
using per_element::Results;
using torch::Tensor;
using Dims = std::vector<std::int64_t>;

struct Reduction {
  std::string name;
  std::function<Results(const Tensor&, torch::IntArrayRef, bool)> call;
};

template <class T>
Results list(const T& pair) {
  return {std::get<0>(pair), std::get<1>(pair)};
}

const std::vector<Reduction>& reductions() {
  static const std::vector<Reduction> all = {
      {"sum", [](const Tensor& x, auto d, bool k) { return Results{x.sum(d, k)}; }},
      {"sum in double", [](const Tensor& x, auto d, bool k) { return Results{x.sum(d, k, torch::kDouble)}; }},
      {"mean", [](const Tensor& x, auto d, bool k) { return Results{x.mean(d, k)}; }},
      {"amax", [](const Tensor& x, auto d, bool k) { return Results{x.amax(d, k)}; }},
      {"amin", [](const Tensor& x, auto d, bool k) { return Results{x.amin(d, k)}; }},
      {"logsumexp", [](const Tensor& x, auto d, bool k) { return Results{x.logsumexp(d, k)}; }},
      {"var", [](const Tensor& x, auto d, bool k) { return Results{x.var(d, false, k)}; }},
      {"var, corrected", [](const Tensor& x, auto d, bool k) { return Results{x.var(d, 1, k)}; }},
      {"std", [](const Tensor& x, auto d, bool k) { return Results{x.std(d, false, k)}; }},
      {"var_mean", [](const Tensor& x, auto d, bool k) { return list(torch::var_mean(x, d, false, k)); }},
      {"std_mean", [](const Tensor& x, auto d, bool k) { return list(torch::std_mean(x, d, false, k)); }},
      {"norm", [](const Tensor& x, auto d, bool k) { return Results{x.norm(2, d, k)}; }},
      {"norm of 1", [](const Tensor& x, auto d, bool k) { return Results{x.norm(1, d, k)}; }},
      {"norm of 3", [](const Tensor& x, auto d, bool k) { return Results{torch::linalg_vector_norm(x, 3, d, k)}; }},
      {"norm of 0", [](const Tensor& x, auto d, bool k) { return Results{torch::linalg_vector_norm(x, 0, d, k)}; }},
      {"norm of infinity",
       [](const Tensor& x, auto d, bool k) { return Results{torch::linalg_vector_norm(x, INFINITY, d, k)}; }},
      {"nansum", [](const Tensor& x, auto d, bool k) { return Results{x.nansum(d, k)}; }},
      {"nanmean", [](const Tensor& x, auto d, bool k) { return Results{x.nanmean(d, k)}; }},
      {"any", [](const Tensor& x, auto d, bool k) { return Results{(x > 2).any(d, k)}; }},
      {"all", [](const Tensor& x, auto d, bool k) { return Results{(x < 2).all(d, k)}; }},
      {"count_nonzero", [](const Tensor& x, auto d, bool) { return Results{torch::count_nonzero(x.relu(), d)}; }},
  };
  return all;
}

TEST_CASE("NestedTensor: reductions over dimensions of the elements are those of each element", "[nested]") {
  for (const Reduction& reduction : reductions()) {
    for (const Layout& layout : per_element::layouts()) {
      for (std::int64_t first = -layout.rank(); first < layout.rank(); ++first) {
        for (std::int64_t second = first; second < layout.rank(); ++second) {
          Dims dims = {first}, own = {layout.element_dim(first)};
          if (second != first && (first >= 0) == (second >= 0)) {
            dims.push_back(second);
            own.push_back(layout.element_dim(second));
          }
          const std::int64_t batch = layout.batch_dim();
          const auto is_batch = [&](std::int64_t dim) { return dim == batch || dim + layout.rank() == batch; };
          if ((second != first && dims.size() == 1) || is_batch(first) || is_batch(second)) {
            continue;
          }
          for (const bool keepdim : {false, true}) {
            INFO(reduction.name << " over " << dims << (keepdim ? ", kept" : ""));
            per_element::check_same(
                layout, [&](const Tensor& x) { return reduction.call(x, dims, keepdim); },
                [&](const Tensor& x) { return reduction.call(x, own, keepdim); });
          }
        }
      }
    }
  }
}

TEST_CASE("NestedTensor: reductions keep the order of the dimensions that are left, also sequence first", "[nested]") {
  const Layout layout{"sequence first", {{3, 4}, {5, 4}, {1, 4}}, false};
  const NestedTensor x = layout.nested();
  const Tensor padded = x.tensor();
  CHECK(x.sum(0).sizes() == padded.sum(0).sizes());  // (batch, width), as after any encoder
  CHECK(per_element::close(x.sum(0), padded.sum(0)));
  CHECK(per_element::close(x.sum(0, true), padded.sum(0, true)));
  CHECK(per_element::close(x.sum(Dims{0, 2}), padded.sum(Dims{0, 2})));
  CHECK(per_element::close(NestedTensor(x.sum(2)).tensor(), padded.sum(2)));
}

TEST_CASE("NestedTensor: reductions over the batch dimension alone are of each whole element", "[nested]") {
  for (const Reduction& reduction : reductions()) {
    for (const Layout& layout : per_element::layouts()) {
      INFO(reduction.name);
      Dims whole;
      for (std::int64_t dim = 0; dim + 1 < layout.rank(); ++dim) {
        whole.push_back(dim);
      }
      per_element::check_same(
          layout, [&](const Tensor& x) { return reduction.call(x, {layout.batch_dim()}, false); },
          [&](const Tensor& x) { return reduction.call(x, whole, false); });
    }
  }
}

TEST_CASE("NestedTensor: reductions without a dimension, and over batch and sequences, see all valid values",
          "[nested]") {
  const Layout layout = per_element::layouts().front();
  for (const Reduction& reduction : reductions()) {
    INFO(reduction.name);
    const NestedTensor x = layout.nested(torch::kFloat, true);
    const Tensor all = torch::cat(layout.elements()).requires_grad_();
    const std::vector<std::pair<Dims, Dims>> cases = {{{0, 1}, {0}}, {{0, 1, 2}, {0, 1}}, {{-3, -2}, {0}}};
    for (const auto& [dims, own] : cases) {
      const Results got = reduction.call(x, dims, false), expected = reduction.call(all, own, false);
      for (std::size_t at = 0; at < got.size(); ++at) {
        CHECK_FALSE(NestedTensor::is_nested(got[at]));
        CHECK(per_element::close(got[at], expected[at]));
      }
      if (got[0].requires_grad()) {
        per_element::loss_of(got[0]).backward();
        per_element::loss_of(expected[0]).backward();
      }
    }
    if (all.grad().defined()) {
      CHECK(per_element::close(NestedTensor(x.grad()).concat(), all.grad(), 1e-4, 1e-4));
    }
  }
  const NestedTensor x = layout.nested();
  const Tensor all = torch::cat(layout.elements());
  CHECK(x.sum().equal(all.sum()));
  CHECK(x.mean().equal(all.mean()));
  CHECK(x.max().equal(all.max()));
  CHECK(x.min().equal(all.min()));
  CHECK(x.prod().allclose(all.prod()));
  CHECK(x.std().equal(all.std()));
  CHECK(x.var().equal(all.var()));
  CHECK(x.norm().equal(all.norm()));
  CHECK(x.median().equal(all.median()));
  CHECK(torch::any(x > 0).item<bool>());
  CHECK_FALSE(torch::all(x > 0).item<bool>());
  CHECK(torch::count_nonzero(x).item<std::int64_t>() == all.numel());
}

TEST_CASE("NestedTensor: reductions over the batch and static dimensions keep positions", "[nested]") {
  const NestedTensor x({torch::tensor({{1., 2.}, {3., 4.}}), torch::tensor({{10., 20.}})});
  CHECK(x.sum(Dims{0, 2}).equal(torch::tensor({33., 7.})));
  CHECK(x.mean(Dims{0, 2}).equal(torch::tensor({8.25, 3.5})));
  CHECK(x.amax({0, 2}).equal(torch::tensor({20., 4.})));
  CHECK(x.sum(Dims{0, 2}, true).equal(torch::tensor({{{33.}, {7.}}})));
  const NestedTensor pictures({torch::ones({2, 3}), torch::ones({1, 4})});
  CHECK(pictures.sum(Dims{0, 1}).equal(torch::tensor({3., 3., 3., 1.})));
  CHECK(pictures.sum(Dims{0, 2}).equal(torch::tensor({7., 3.})));
}

TEST_CASE("NestedTensor: empty sequences sum to 0, have a mean of NaN and no maximum", "[nested]") {
  const NestedTensor x({torch::ones({2, 3}), torch::ones({0, 3})});
  CHECK(x.sum(1).equal(torch::tensor({{2., 2., 2.}, {0., 0., 0.}})));
  CHECK(x.mean(1)[1].isnan().all().item<bool>());
  CHECK(x.var(1, false)[1].isnan().all().item<bool>());
  CHECK(x.prod(1)[1].equal(torch::ones({3})));
  CHECK(x.logsumexp(1)[1].equal(torch::full({3}, -INFINITY)));
  CHECK_FALSE((x > 0).any(1)[1].any().item<bool>());
  CHECK((x > 0).all(1)[1].all().item<bool>());
  CHECK_THROWS_WITH(x.amax(1), ContainsSubstring("[nested_tensor.amax] expected values to reduce in each sequence, got "
                                                 "an empty one"));
  CHECK_THROWS_WITH(x.max(1), ContainsSubstring("[nested_tensor.max] expected values to reduce in each sequence"));
  CHECK_THROWS_WITH(x.argmax(1), ContainsSubstring("[nested_tensor.argmax] expected values to reduce"));
  CHECK_THROWS_WITH(x.sum(3), ContainsSubstring("expected a dimension from -3 to 2, got 3"));
  CHECK_THROWS_WITH(x.sum({1, -2}), ContainsSubstring("[nested_tensor.sum] expected each dimension once, got (1, -2)"));
}

TEST_CASE("NestedTensor: an empty batch reduces to tensors of size 0", "[nested]") {
  const NestedTensor x = NestedTensor::from_concatenated(torch::empty({0}), {});
  CHECK(x.sum().item<float>() == 0);
  CHECK(x.sum(1).numel() == 0);
  CHECK(x.amax(1).numel() == 0);
}

TEST_CASE("NestedTensor: reductions keep the types that LibTorch gives", "[nested]") {
  const Layout& layout = per_element::layouts().front();
  for (const auto type : {torch::kLong, torch::kInt, torch::kByte, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    INFO(torch::toString(type));
    const double tolerance = type == torch::kBFloat16 ? 2e-2 : 2e-3;
    for (const std::int64_t dim : {1, 2}) {
      const auto check = [&](const std::function<Results(const Tensor&, std::int64_t)>& call) {
        per_element::check_same(
            layout, [&](const Tensor& x) { return call(x, dim); }, [&](const Tensor& x) { return call(x, dim - 1); },
            type, tolerance);
      };
      check([](const Tensor& x, std::int64_t d) { return Results{x.sum(d)}; });
      check([](const Tensor& x, std::int64_t d) { return Results{x.amax(d)}; });
      check([](const Tensor& x, std::int64_t d) { return Results{x.amin(d)}; });
      check([](const Tensor& x, std::int64_t d) { return Results{x.any(d)}; });
      check([](const Tensor& x, std::int64_t d) { return Results{x.all(d)}; });
      if (torch::isFloatingType(type)) {
        check([](const Tensor& x, std::int64_t d) { return Results{x.mean(d)}; });
        check([](const Tensor& x, std::int64_t d) { return Results{x.logsumexp(d)}; });
      }
    }
  }
}

TEST_CASE("Segments: kernels by index, as other devices use them, give what the loops give", "[nested]") {
  using namespace danling::detail;
  torch::manual_seed(8);
  for (const bool contiguous : {true, false}) {
    for (const std::int64_t columns : {1, 3}) {
      Segments segments;
      segments.index = contiguous ? torch::tensor({0, 0, 0, 2, 2, 3}, torch::kLong)
                                  : torch::tensor({3, 0, 2, 0, 2, 0}, torch::kLong);
      segments.counts = {3, 0, 2, 1};
      segments.contiguous = contiguous;
      for (const auto type : {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kLong, torch::kByte}) {
        Tensor values = (torch::rand({6, columns}) * 50).to(type);
        if (type == torch::kFloat) {
          values[1][0] = NAN;
        }
        for (const SegmentOp op : {SegmentOp::sum, SegmentOp::max, SegmentOp::min}) {
          INFO(type << ", operation " << static_cast<int>(op) << ", columns " << columns);
          const at::Scalar initial = initial_of(op, type);
          const Tensor loop = loop_over_segments(values, segments, op, initial);
          CHECK(torch::allclose(loop, reduce_by_index(values, segments, op, initial), 1e-5, 1e-8, true));
          CHECK(loop.scalar_type() == type);
        }
      }
    }
  }
}

TEST_CASE("NestedTensor: reductions work without gradients, in inference mode, and in several threads", "[nested]") {
  const Layout& layout = per_element::layouts().front();
  const NestedTensor x = layout.nested(torch::kFloat, true);
  const Tensor expected = x.softmax(1).sum(1).detach();
  {
    const torch::NoGradGuard no_gradients;
    CHECK_FALSE(x.softmax(1).requires_grad());
    CHECK(x.softmax(1).sum(1).equal(expected));
  }
  {
    const c10::InferenceMode inference;
    CHECK(layout.nested().softmax(1).sum(1).equal(expected));
    CHECK(x.softmax(1).sum(1).equal(expected));
  }
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int again = 0; again < 20; ++again) {
        equal += x.softmax(1).sum(1).equal(expected) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(equal == 80);
}

TEST_CASE("NestedTensor: values that are not contiguous reduce as others do", "[nested]") {
  const Tensor values = torch::randn({4, 7}).t();
  const NestedTensor x = NestedTensor::from_concatenated(values, {{5, 4}, {0, 4}, {2, 4}});
  CHECK_FALSE(x.concat().is_contiguous());
  CHECK(x.sum(1)[0].allclose(values.narrow(0, 0, 5).sum(0)));
  CHECK(x.sum(1)[2].allclose(values.narrow(0, 5, 2).sum(0)));
  CHECK(NestedTensor(x.softmax(1)).elements()[2].allclose(values.narrow(0, 5, 2).softmax(0)));
  CHECK(NestedTensor(x.cumsum(1)).elements()[0].allclose(values.narrow(0, 0, 5).cumsum(0)));
}

TEST_CASE("NestedTensor: sums of bfloat16 are made in float", "[nested]") {
  const NestedTensor x({torch::ones({4096, 2}, torch::kBFloat16), torch::ones({3, 2}, torch::kBFloat16)});
  CHECK(x.sum(1)[0].equal(torch::full({2}, 4096, torch::kBFloat16)));
  CHECK(x.mean(1)[0].equal(torch::ones({2}, torch::kBFloat16)));
}

TEST_CASE("NestedTensor: NaN in a sequence stays in that sequence", "[nested]") {
  const NestedTensor x({torch::tensor({1.F, NAN, 2.F}), torch::tensor({4.F, 3.F})});
  CHECK(x.amax(1)[0].isnan().item<bool>());
  CHECK(x.amax(1)[1].item<float>() == 4);
  CHECK(x.sum(1)[1].item<float>() == 7);
  CHECK(x.nansum(1).equal(torch::tensor({3.F, 7.F})));
  CHECK(x.nanmean(1).equal(torch::tensor({1.5F, 3.5F})));
}

}  // namespace
}  // namespace nested_reductions
