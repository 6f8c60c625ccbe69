// Scores and weights of attention, whose values are computed when they are read; users see ordinary tensors.
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <c10/core/InferenceMode.h>
#include <torch/nn.h>
#include <torch/script.h>

#include <danling/core/error.hpp>
#include <danling/nn/recompute.hpp>

#include <nested/called_operators.hpp>
#include <nested/element_checks.hpp>

namespace nested_deferred {
namespace {

using danling::NestedTensor;
using element_checks::Elements;
using nested_tests::CalledOperators;
using torch::Tensor;

/// Queries and keys of sequences that are long enough for a fused kernel.
struct Factors {
  explicit Factors(bool requires_grad = true, torch::ScalarType type = torch::kDouble) {
    torch::manual_seed(70);
    for (const auto& [length, keys] : std::vector<std::pair<std::int64_t, std::int64_t>>{{20, 30}, {33, 18}}) {
      q_parts.push_back(torch::randn({length, 4}, type));
      k_parts.push_back(torch::randn({keys, 4}, type));
      v_parts.push_back(torch::randn({keys, 4}, type));
    }
    q = NestedTensor(q_parts, {.requires_grad = requires_grad});
    k = NestedTensor(k_parts, {.requires_grad = requires_grad});
    v = NestedTensor(v_parts, {.requires_grad = requires_grad});
  }
  Tensor scores() const { return torch::bmm(q, k.transpose(1, 2)); }
  Tensor weights() const { return scores().softmax(-1); }
  /// Packed values, computed with plain tensors.
  Tensor expected_scores() const {
    return torch::cat(
        {torch::mm(q_parts[0], k_parts[0].t()).flatten(), torch::mm(q_parts[1], k_parts[1].t()).flatten()});
  }
  Tensor expected_weights() const {
    return torch::cat({torch::mm(q_parts[0], k_parts[0].t()).softmax(-1).flatten(),
                       torch::mm(q_parts[1], k_parts[1].t()).softmax(-1).flatten()});
  }

  Elements q_parts, k_parts, v_parts;
  Tensor q, k, v;
};

Tensor packed(const Tensor& x) { return NestedTensor(x).concat(); }
bool close(const Tensor& got, const Tensor& expected) { return torch::allclose(got, expected, 1e-6, 1e-9); }
Elements gradients_of(const Factors& from, const Tensor& loss) {
  return torch::autograd::grad({loss}, {from.q, from.k}, {}, /*retain_graph=*/true);
}

TEST_CASE("deferred scores: sizes, types and history are there before the values", "[nested][deferred]") {
  for (const bool requires_grad : {true, false}) {
    const Factors from(requires_grad);
    for (const auto& make : std::vector<std::function<Tensor()>>{
             [&] { return from.scores(); }, [&] { return from.weights(); }, [&] { return from.scores() / 2; }}) {
      const CalledOperators called;
      const Tensor x = make();
      CHECK(NestedTensor::is_nested(x));
      CHECK(x.sizes() == torch::IntArrayRef({2, 33, 30}));
      CHECK(x.dim() == 3);
      CHECK(x.numel() == 20 * 30 + 33 * 18);
      CHECK(x.scalar_type() == torch::kDouble);
      CHECK(x.device().is_cpu());
      CHECK(x.is_contiguous());
      CHECK(x.requires_grad() == requires_grad);
      CHECK(x.is_leaf() == !requires_grad);
      CHECK((x.grad_fn() != nullptr) == requires_grad);
      CHECK(x.use_count() == 1);
      CHECK_FALSE(called.contain("aten::empty"));  // nothing has memory yet
      CHECK_FALSE(called.contain("aten::_softmax"));
      const NestedTensor nested(x);
      CHECK(nested.shapes() == std::vector<std::vector<std::int64_t>>{{20, 30}, {33, 18}});
      CHECK(nested.ragged_dims() == std::vector<std::int64_t>{0, 1});
      CHECK(nested.batch_size() == 2);
      CHECK(nested.occupancy() == Approx((20 * 30 + 33 * 18) / (2.0 * 33 * 30)));
      CHECK(nested.offsets().equal(torch::tensor({0, 600, 1194}, torch::kLong)));
    }
  }
}

TEST_CASE("deferred scores: every way to read them gives the values", "[nested][deferred]") {
  const Factors from;
  const NestedTensor weights(from.weights());
  const Tensor expected = from.expected_weights();
  CHECK(close(weights.concat(), expected));
  CHECK(close(packed(from.weights().detach()), expected));
  CHECK(close(packed(from.weights().clone()), expected));
  CHECK(close(NestedTensor(from.weights())[1].flatten(), expected.slice(0, 600)));
  CHECK(close(NestedTensor(from.weights()).elements()[0].flatten(), expected.slice(0, 0, 600)));
  CHECK(close(NestedTensor(from.weights()).tensor()[0].slice(0, 0, 20).flatten(), expected.slice(0, 0, 600)));
  CHECK(close(NestedTensor(from.weights()).deep_copy().concat(), expected));
  CHECK(close(NestedTensor(from.weights()).shallow_copy().concat(), expected));
  CHECK(close(packed(from.weights().to(torch::kCPU)), expected));
  CHECK(close(packed(from.weights().transpose(1, 2).transpose(1, 2)), expected));
  CHECK(close(torch::tensor(NestedTensor(from.weights()).tolist<double>()[1], torch::kDouble), expected.slice(0, 600)));
  std::ostringstream text, same;
  text << NestedTensor(from.weights());
  same << weights;
  CHECK(text.str() == same.str());
  Tensor other = torch::zeros_like(weights);
  other.copy_(from.weights());
  CHECK(close(packed(other), expected));
  Tensor changed = from.weights();
  changed.mul_(2);
  CHECK(close(packed(changed), 2 * expected));
  CHECK(packed(weights).data_ptr() == packed(weights).data_ptr());
}

TEST_CASE("deferred scores: gradients are those of the factors, whoever asks", "[nested][deferred]") {
  const Factors from;
  Tensor q = torch::cat(from.q_parts).requires_grad_(), k = torch::cat(from.k_parts).requires_grad_();
  const auto parts = [](const Tensor& values, std::int64_t first) {
    return std::vector<Tensor>{values.slice(0, 0, first), values.slice(0, first)};
  };
  const auto plain = [&] {
    const auto left = parts(q, 20), right = parts(k, 30);
    return torch::cat({torch::mm(left[0], right[0].t()).softmax(-1).flatten(),
                       torch::mm(left[1], right[1].t()).softmax(-1).flatten()});
  };
  const Tensor seeds = torch::randn(20 * 30 + 33 * 18, torch::kDouble);
  const auto wanted = torch::autograd::grad({(plain() * seeds).sum()}, {q, k});
  const auto check = [&](const Elements& got) {
    REQUIRE(got.size() == 2);
    CHECK(close(packed(got[0]), wanted[0]));
    CHECK(close(packed(got[1]), wanted[1]));
  };
  const Tensor seed = NestedTensor::from_concatenated(seeds, {{20, 30}, {33, 18}}, {.ragged_dims = {{0, 1}}});
  SECTION("of values that were read") {
    const Tensor weights = from.weights();
    check(gradients_of(from, (packed(weights) * seeds).sum()));
    check(gradients_of(from, packed(weights * seed).sum()));
  }
  SECTION("of the tensor as a root") {
    const Tensor weights = from.weights();
    check(torch::autograd::grad({weights}, {from.q, from.k}, {seed}, true));
    check(torch::autograd::grad({weights}, {from.q, from.k}, {seed}));
    CHECK_THROWS_WITH(torch::autograd::grad({weights}, {from.q, from.k}, {seed}),
                      ContainsSubstring("expected one backward pass, got a second one"));
  }
  SECTION("of the average over heads as a root") {
    const Tensor scaled = (from.weights().view({2, 1, 33, 30}).sum(1) / 1);
    CHECK(scaled.sizes() == torch::IntArrayRef({2, 33, 30}));
    check(torch::autograd::grad({scaled}, {from.q, from.k}, {seed}));
  }
  SECTION("of a hook") {
    const Tensor weights = from.weights();
    Tensor seen;
    weights.register_hook([&](const Tensor& gradient) { seen = gradient; });
    check(gradients_of(from, (packed(weights) * seeds).sum()));
    CHECK(close(packed(seen), seeds));
  }
  SECTION("of a gradient") {
    const auto first = torch::autograd::grad({from.weights()}, {from.q, from.k}, {seed}, true, true);
    const auto got = gradients_of(from, packed(first[0]).square().sum() + packed(first[1]).square().sum());
    const auto plain_first = torch::autograd::grad({(plain() * seeds).sum()}, {q, k}, {}, true, true);
    const auto second = torch::autograd::grad({plain_first[0].square().sum() + plain_first[1].square().sum()}, {q, k});
    CHECK(close(packed(got[0]), second[0]));
    CHECK(close(packed(got[1]), second[1]));
  }
}

TEST_CASE("deferred scores: a hook of weights sees their gradient in attention", "[nested][deferred]") {
  const Factors from;
  const auto with_hook = [&](bool on_scores, bool retains) {
    Tensor scores = from.scores();
    Tensor weights = on_scores ? Tensor() : scores.softmax(-1);
    const Tensor& watched = on_scores ? scores : weights;
    Tensor seen;
    if (retains) {
      watched.retain_grad();
    } else {
      watched.register_hook([&](const Tensor& gradient) { seen = gradient; });
    }
    if (on_scores) {
      weights = scores.softmax(-1);
    }
    packed(torch::bmm(weights, from.v)).sum().backward();
    return packed(retains ? watched.grad() : seen);
  };
  // Hooks of the weights: the gradient of a weight is the sum of its value vector.
  Elements expected;
  for (std::size_t i = 0; i < 2; ++i) {
    expected.push_back(from.v_parts[i].sum(1).expand({from.q_parts[i].size(0), -1}).flatten());
  }
  CHECK(close(with_hook(false, false), torch::cat(expected)));
  CHECK(close(with_hook(false, true), torch::cat(expected)));
  CHECK(close(with_hook(true, true), with_hook(true, false)));
  CHECK(from.q.grad().defined());
}

TEST_CASE("deferred scores: modes are those of the operators, not of the reader", "[nested][deferred]") {
  const Factors from;
  Tensor made, weights;
  {
    const torch::NoGradGuard no_grad;
    made = from.scores();
  }
  CHECK_FALSE(made.requires_grad());
  CHECK_FALSE(packed(made).requires_grad());
  CHECK_FALSE(packed(made.softmax(-1)).requires_grad());
  const Tensor attended = torch::bmm(made.softmax(-1), from.v);
  CHECK(attended.requires_grad());  // of the values only
  const auto gradients = torch::autograd::grad({packed(attended).sum()}, {from.q, from.v}, {}, false, false, true);
  CHECK_FALSE(gradients[0].defined());
  CHECK(gradients[1].defined());
  const Tensor scores = from.scores();
  {
    const torch::NoGradGuard no_grad;
    CHECK(packed(scores).requires_grad());
    CHECK_FALSE(packed(scores * 1).requires_grad());
  }
  const Tensor late = from.scores();
  {
    const torch::NoGradGuard no_grad;
    weights = late.softmax(-1);
  }
  CHECK_FALSE(packed(weights).requires_grad());
  CHECK(packed(late).requires_grad());
}

TEST_CASE("deferred scores: InferenceMode", "[nested][deferred]") {
  Tensor weights, mean, attended;
  const Factors outside(false);
  {
    const c10::InferenceMode inference;
    const Factors from(false);
    weights = from.weights();
    mean = weights.view({2, 1, 33, 30}).sum(1);
    CHECK(weights.is_inference());
    attended = torch::bmm(weights, from.v);
    packed(from.q).mul_(3);  // no tensor counts such changes
    CHECK(close(packed(weights), from.expected_weights()));
    packed(weights).zero_();
    const Tensor again = from.scores();
    CHECK(close(packed(again), torch::cat({torch::mm(3 * from.q_parts[0], from.k_parts[0].t()).flatten(),
                                           torch::mm(3 * from.q_parts[1], from.k_parts[1].t()).flatten()})));
  }
  CHECK(close(packed(mean), outside.expected_weights()));  // not of the zeros
  CHECK(packed(weights).is_inference());
  CHECK(packed(weights).eq(0).all().item<bool>());
  const Tensor plain = torch::bmm(outside.weights(), outside.v);
  CHECK(close(packed(attended), packed(plain)));
}

TEST_CASE("deferred scores: a factor that was changed in place before they were read is an error",
          "[nested][deferred]") {
  const std::string message =
      "expected queries and keys that are not changed in place before the attention scores are read";
  const Factors from(false);
  for (const bool key : {false, true}) {
    Tensor factor = key ? from.k : from.q;
    const Tensor scores = from.scores(), weights = scores.softmax(-1), read = from.scores();
    CHECK(packed(read).defined());
    factor.mul_(2);
    CHECK_THROWS_WITH(packed(scores), ContainsSubstring("[nested_tensor.bmm] " + message));
    CHECK_THROWS_WITH(torch::bmm(weights, from.v), ContainsSubstring(message));
    CHECK_THROWS_AS(weights + 1, danling::DataError);
    CHECK_NOTHROW(packed(read * 1));
  }
  // Weights whose own source was changed in place after it was read.
  Tensor scores = from.scores();
  const Tensor weights = scores.softmax(-1);
  scores.add_(1);
  CHECK_THROWS_WITH(packed(weights), ContainsSubstring("[nested_tensor.values] " + message));
}

TEST_CASE("deferred scores: several threads read one tensor", "[nested][deferred][threads]") {
  const Factors from;
  const Tensor expected = from.expected_weights();
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Tensor weights = from.weights(), scores = from.scores(), later = scores.softmax(-1);
    std::vector<Tensor> got(4);
    std::vector<std::thread> threads;
    for (std::size_t at = 0; at < got.size(); ++at) {
      threads.emplace_back([&, at] { got[at] = at % 2 == 0 ? packed(weights) : packed(later); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const Tensor& one : got) {
      CHECK(close(one, expected));
    }
    CHECK(got[0].data_ptr() == got[2].data_ptr());
  }
}

TEST_CASE("deferred scores: TorchScript", "[nested][deferred]") {
  const auto unit = torch::jit::compile(R"(
def attend(q, k, v):
    weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1)
    return torch.bmm(weights, v), weights
)");
  const Factors from(false);
  for (int call = 0; call < 4; ++call) {
    const auto out = unit->run_method("attend", from.q, from.k, from.v).toTuple();
    CHECK(close(packed(out->elements()[1].toTensor()), from.expected_weights()));
    CHECK(close(packed(out->elements()[0].toTensor()),
                torch::cat({torch::mm(torch::mm(from.q_parts[0], from.k_parts[0].t()).softmax(-1), from.v_parts[0]),
                            torch::mm(torch::mm(from.q_parts[1], from.k_parts[1].t()).softmax(-1), from.v_parts[1])})));
  }
}

/// y = 3 x, in code without knowledge of nested tensors.
struct Triple : torch::autograd::Function<Triple> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x * 3; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 3};
  }
};

TEST_CASE("deferred scores: custom functions and recompute take them", "[nested][deferred]") {
  const Factors from;
  const auto gradient = [&](const std::function<Tensor(const Tensor&)>& function) {
    return gradients_of(from, packed(torch::bmm(function(from.scores()), from.v)).square().sum());
  };
  const auto expected = gradient([](const Tensor& scores) { return packed(scores), (scores * 1).mul(3).softmax(-1); });
  const auto same = [&](const Elements& got) {
    return close(packed(got[0]), packed(expected[0])) && close(packed(got[1]), packed(expected[1]));
  };
  CHECK(same(gradient([](const Tensor& scores) { return Triple::apply(scores).softmax(-1); })));
  CHECK(same(gradient([](const Tensor& scores) {
    return danling::nn::recompute([](const Tensor& x) { return (x * 3).softmax(-1); }, scores);
  })));
  CHECK(same(gradient([](const Tensor& scores) {
    return danling::nn::recompute([](const Tensor& x) { return x.softmax(-1); }, scores * 3);
  })));
  torch::manual_seed(71);
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 2));
  const NestedTensor x({torch::randn({20, 8}), torch::randn({33, 8})}, {.requires_grad = true, .batch_first = false});
  const auto run = [&](bool again, bool reads_weights) {
    const auto attend = [&](const Tensor& input) {
      const auto [out, weights] = attention->forward(input, input, input);
      return reads_weights ? weights : out;
    };
    const Tensor out = again ? danling::nn::recompute(attend, Tensor(x)) : attend(x);
    return torch::autograd::grad({packed(out).square().sum()}, {x, attention->in_proj_weight});
  };
  for (const bool reads_weights : {false, true}) {
    const auto got = run(true, reads_weights), wanted = run(false, reads_weights);
    CHECK(torch::allclose(packed(got[0]), packed(wanted[0]), 1e-5, 1e-6));
    CHECK(torch::allclose(got[1], wanted[1], 1e-5, 1e-6));
  }
}

}  // namespace
}  // namespace nested_deferred
