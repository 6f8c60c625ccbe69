// Ring attention over parts of sequences, against LibTorch's attention over whole ones.
#include <mutex>

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/autograd.h>
#include <torch/nn.h>

#include <danling/core/error.hpp>
#include <danling/parallel/context_parallel.hpp>
#include <danling/parallel/ring_attention.hpp>

#include <nn/recorded_inputs.hpp>
#include <parallel/ring_blocks.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace context_ring_attention_test {
namespace {

using danling::DataError;
using danling::Group;
using danling::detail::concat;
using danling::parallel::context_part;
using danling::parallel::gather_context;
using danling::parallel::ring_attention;
using danling::parallel::RingAttentionFuncOptions;
using danling_test::error_of;
using danling_test::expect;
using torch::Tensor;

Tensor draw(std::vector<std::int64_t> sizes, std::uint64_t seed, at::ScalarType type) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kDouble)).to(type);
}

struct Sizes {
  std::int64_t batch = 2, heads = 2, key_heads = 2, length = 24, head_dim = 5, value_dim = 5;
};

struct Tolerance {
  double relative, absolute;
};

Tolerance tolerance_of(at::ScalarType type) {
  return type == at::kDouble  ? Tolerance{1e-9, 1e-11}
         : type == at::kFloat ? Tolerance{1e-4, 1e-5}
                              : Tolerance{0.05, 0.05};
}

void expect_close(const Tensor& got, const Tensor& wanted, const std::string& what) {
  const auto [relative, absolute] = tolerance_of(got.scalar_type());
  expect(got.sizes() == wanted.sizes(), concat(what, " of sizes ", danling::detail::join(wanted.sizes()), ", got ",
                                               danling::detail::join(got.sizes())));
  expect(at::allclose(got.to(at::kDouble), wanted.to(at::kDouble), relative, absolute),
         concat(what, " of whole sequences; they differ by ",
                got.numel() == 0 ? 0.0 : (got.to(at::kDouble) - wanted.to(at::kDouble)).abs().max().item<double>()));
}

/// Forward and backward of every rank's part against the part of LibTorch's results in float64.
void compare(const Group& group, const Sizes& sizes, at::ScalarType type, const RingAttentionFuncOptions& options) {
  std::vector<Tensor> whole = {draw({sizes.batch, sizes.heads, sizes.length, sizes.head_dim}, 1, type),
                               draw({sizes.batch, sizes.key_heads, sizes.length, sizes.head_dim}, 2, type),
                               draw({sizes.batch, sizes.key_heads, sizes.length, sizes.value_dim}, 3, type)};
  const Tensor weight = draw({sizes.batch, sizes.heads, sizes.length, sizes.value_dim}, 4, type);
  std::vector<Tensor> parts;
  for (Tensor& tensor : whole) {
    parts.push_back(context_part(tensor, 2, group, options.balanced).detach().clone().requires_grad_());
    tensor = tensor.to(at::kDouble).requires_grad_();
  }
  const Tensor wanted = at::scaled_dot_product_attention(whole[0], whole[1], whole[2], {}, 0.0, options.is_causal,
                                                         options.scale, options.enable_gqa);
  (wanted * weight).sum().backward();
  const Tensor got = ring_attention(parts[0], parts[1], parts[2], group, options);
  expect(got.scalar_type() == type, "the output in the dtype of the query");
  expect_close(got, context_part(wanted, 2, group, options.balanced), "output");
  (got * context_part(weight, 2, group, options.balanced)).sum().backward();
  const char* const names[] = {"query", "key", "value"};
  for (std::size_t at = 0; at < 3; ++at) {
    expect(parts[at].grad().scalar_type() == type, "gradients in the dtype of the query");
    expect_close(parts[at].grad(), context_part(whole[at].grad(), 2, group, options.balanced),
                 concat("gradient of the ", names[at]));
  }
}

TEST_CASE("ring_attention: equals attention over whole sequences, forward and backward", "[parallel][context]") {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool is_causal : {false, true}) {
      for (const bool balanced : {false, true}) {
        for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
          INFO(ranks << " ranks, causal " << is_causal << ", balanced " << balanced << ", " << c10::toString(type));
          CHECK_NOTHROW(Group::run_threads(ranks, [&](const Group& group) {
            compare(group, {}, type, {.is_causal = is_causal, .balanced = balanced});
          }));
        }
      }
    }
  }
}

TEST_CASE("ring_attention: a batch of one, one token a part, other value dims, few key heads, a scale",
          "[parallel][context]") {
  const std::vector<std::pair<Sizes, RingAttentionFuncOptions>> cases = {
      {{.batch = 1, .heads = 1, .key_heads = 1, .length = 6, .head_dim = 1, .value_dim = 1}, {.is_causal = true}},
      {{.value_dim = 3}, {.is_causal = true}},  // without LibTorch's flash kernel
      {{.value_dim = 7}, {}},
      {{.heads = 6}, {.is_causal = true, .enable_gqa = true}},
      {{.heads = 4, .value_dim = 3}, {.enable_gqa = true}},
      {{.length = 12}, {.is_causal = true, .scale = 0.3}},
      {{.batch = 0}, {.is_causal = true}},
      {{.length = 0}, {.is_causal = true}},
      {{.length = 300, .head_dim = 33, .value_dim = 33}, {.is_causal = true}},
  };
  for (std::size_t at = 0; at < cases.size(); ++at) {
    for (const auto type : {at::kDouble, at::kFloat}) {
      INFO("case " << at << ", " << c10::toString(type));
      CHECK_NOTHROW(
          Group::run_threads(3, [&](const Group& group) { compare(group, cases[at].first, type, cases[at].second); }));
    }
  }
  CHECK_NOTHROW(Group::run_threads(2, [](const Group& group) { compare(group, {}, at::kHalf, {.is_causal = true}); }));
  // Queries and keys of different lengths.
  CHECK_NOTHROW(Group::run_threads(2, [&](const Group& group) {
    const Tensor query = draw({1, 2, 6, 4}, 1, at::kDouble), key = draw({1, 2, 10, 4}, 2, at::kDouble);
    const Tensor wanted = at::scaled_dot_product_attention(query, key, key);
    const Tensor own = context_part(key, 2, group, false);
    expect_close(ring_attention(context_part(query, 2, group, false), own, own, group),
                 context_part(wanted, 2, group, false), "output");
  }));
}

TEST_CASE("ring_attention: strided inputs, constant keys, no gradients, autocast", "[parallel][context]") {
  Group::run_threads(3, [](const Group& group) {
    const Tensor whole = draw({2, 12, 3, 4}, 1, at::kDouble);  // [batch, length, heads, dim]
    const Tensor wanted = at::scaled_dot_product_attention(whole.transpose(1, 2), whole.transpose(1, 2),
                                                           whole.transpose(1, 2), {}, 0.0, /*is_causal=*/true);
    const Tensor part = context_part(whole, 1, group).transpose(1, 2);
    // The last dimension is strided too.
    const Tensor strided = part.transpose(2, 3).contiguous().transpose(2, 3).requires_grad_();
    const Tensor got = ring_attention(strided, part, part, group, {.is_causal = true});
    expect_close(got, context_part(wanted, 2, group), "output");
    got.sum().backward();  // an expanded gradient; keys and values need none
    const Tensor query = whole.transpose(1, 2).detach().clone().requires_grad_();
    at::scaled_dot_product_attention(query, whole.transpose(1, 2), whole.transpose(1, 2), {}, 0.0, true)
        .sum()
        .backward();
    expect_close(strided.grad(), context_part(query.grad(), 2, group), "gradient of the query");
    {
      const torch::NoGradGuard no_grad;
      const Tensor plain = ring_attention(strided, part, part, group, {.is_causal = true});
      expect(!plain.requires_grad(), "no graph");
      expect_close(plain, context_part(wanted, 2, group), "output");
    }
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const Tensor narrow =
        ring_attention(part.to(at::kFloat), part.to(at::kBFloat16), part.to(at::kFloat), group, {.is_causal = true});
    at::autocast::set_autocast_enabled(at::kCPU, false);
    expect(narrow.scalar_type() == at::kBFloat16, "the dtype of autocast");
    expect_close(narrow, context_part(wanted, 2, group), "output under autocast");
  });
}

/// Query rows times keys of each call of LibTorch's kernel in this thread; causal ones count their triangle.
std::vector<std::int64_t>& counted_scores() {
  static thread_local std::vector<std::int64_t> counts;
  return counts;
}

TEST_CASE("ring_attention: balanced ranks compute the same number of scores", "[parallel][context]") {
  const auto count = [](bool balanced) {
    std::mutex mutex;
    std::vector<std::vector<std::int64_t>> of_ranks(4);
    Group::run_threads(4, [&](const Group& group) {
      const auto handle = at::addThreadLocalCallback(
          at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
            if (std::string_view(call.name()).ends_with("flash_attention_for_cpu")) {
              const auto inputs = danling::nn::recorded_inputs(call);
              const std::int64_t rows = inputs[0].toTensor().size(2), keys = inputs[1].toTensor().size(2);
              counted_scores().push_back(inputs[4].toBool() ? rows * (rows + 1) / 2 : rows * keys);
            }
            return nullptr;
          })
              .needsInputs(true)
              .scopes({at::RecordScope::FUNCTION}));
      counted_scores().clear();
      const Tensor part = draw({1, 1, 16, 4}, 1, at::kFloat);
      ring_attention(part, part, part, group, {.is_causal = true, .balanced = balanced});
      at::removeCallback(handle);
      const std::lock_guard lock(mutex);
      of_ranks[static_cast<std::size_t>(group.rank())] = counted_scores();
    });
    return of_ranks;
  };
  // 64 tokens have 64 * 65 / 2 = 2080 scores: a triangle of 16 and three blocks of 128 on each rank.
  CHECK(count(true) == std::vector<std::vector<std::int64_t>>(4, {136, 128, 128, 128}));
  CHECK(count(false) ==
        std::vector<std::vector<std::int64_t>>{{136}, {136, 256}, {136, 256, 256}, {136, 256, 256, 256}});
}

TEST_CASE("ring_attention: errors name shapes and what to do", "[parallel][context]") {
  Group::run_threads(2, [](const Group& group) {
    const auto text = [&](const Tensor& query, const Tensor& key, const RingAttentionFuncOptions& options) {
      try {
        ring_attention(query, key, key, group, options);
      } catch (const DataError& error) {
        return std::string(error.what());
      }
      return std::string("nothing");
    };
    const Tensor four = at::zeros({1, 2, 4, 3}), three = at::zeros({1, 2, 3, 3});
    const auto expect_text = [](const std::string& got, const std::string& wanted) {
      expect(got == "[parallel.ring_attention] " + wanted, concat(wanted, ", got ", got));
    };
    expect_text(text(four[0], four, {}),
                "expected floating [batch, heads, local length, head dim] of one dtype, got query Float [2, 4, 3], key "
                "Float [1, 2, 4, 3], value Float [1, 2, 4, 3]");
    expect_text(text(four, four.to(at::kDouble), {}),
                "expected floating [batch, heads, local length, head dim] of one dtype, got query Float [1, 2, 4, 3], "
                "key Double [1, 2, 4, 3], value Double [1, 2, 4, 3]");
    expect_text(text(four, four.narrow(3, 0, 2), {}),
                "expected equal batches and head dims, and as many values as keys, got query Float [1, 2, 4, 3], key "
                "Float [1, 2, 4, 2], value Float [1, 2, 4, 2]");
    expect_text(text(four, four.narrow(1, 0, 1), {}),
                "expected equal heads, got 2 query heads and 1 key heads; grouped-query attention needs enable_gqa");
    expect_text(text(four.narrow(1, 0, 1), four, {.enable_gqa = true}),
                "expected a multiple of the key heads, got 1 query heads and 2 key heads");
    expect_text(text(three, three, {.is_causal = true}),
                "expected as many keys as queries, of the two parts of a balanced sequence in causal attention, got 3 "
                "queries and 3 keys on each rank");
    expect_text(text(four, three, {.is_causal = true, .balanced = false}),
                "expected as many keys as queries in causal attention, got 4 queries and 3 keys on each rank");
  });
  // Ranks with parts of different lengths: every rank detects the length that the previous rank sent.
  const auto error = error_of<danling::DistributedError>([] {
    Group::run_threads(2, [](const Group& group) {
      const Tensor part = at::zeros({1, 1, group.rank() == 0 ? 2 : 4, 3});
      ring_attention(part, part, part, group);
    });
  });
  CHECK_THAT(error, ContainsSubstring("expected") && ContainsSubstring("got"));
  const auto second = error_of<danling::StateError>([] {
    Group::run_threads(2, [](const Group& group) {
      const Tensor part = at::ones({1, 1, 2, 3}).requires_grad_();
      const Tensor sum = ring_attention(part, part, part, group).sum();
      torch::autograd::grad({sum}, {part}, {}, true, /*create_graph=*/true);
    });
  });
  CHECK_THAT(error, ContainsSubstring("group.recv"));
  CHECK(second ==
        "[parallel.ring_attention] expected a backward pass without create_graph, got one with it: second derivatives "
        "over several ranks are not implemented");
}

TEST_CASE("ring_attention: processes over loopback", "[parallel][context]") {
  danling_test::check_ranks(danling_test::run_ranks(3,
                                                    [](const Group& group) {
                                                      compare(group, {.length = 48}, at::kFloat, {.is_causal = true});
                                                      compare(group, {.length = 48}, at::kDouble, {});
                                                      return std::string("equal");
                                                    }),
                            "equal");
}

}  // namespace
}  // namespace context_ring_attention_test
