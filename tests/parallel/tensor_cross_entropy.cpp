// Cross entropy over a sliced vocabulary against F::cross_entropy of all logits.
#include <danling/parallel/tensor_functions.hpp>
#include <danling/parallel/vocab_cross_entropy.hpp>
#include <danling/runner/criterion.hpp>

#include "parallel/tensor_support.hpp"

namespace tensor_cross_entropy_test {
namespace {

using namespace tensor_test;
using namespace danling::parallel;
namespace F = torch::nn::functional;
using Options = VocabParallelCrossEntropyOptions;
using Reduction = torch::nn::CrossEntropyLossOptions::reduction_t;
using danling_test::error_of;

/// Checks that loss and gradient of a rank's slice equal those of all logits.
void compare(const Group& group, const Tensor& logits, const Tensor& target, const Options& options,
             const std::string& what) {
  const std::int64_t dim = logits.dim() > 1 ? 1 : 0;
  const auto sizes = part_sizes(logits.size(dim), group.size());
  std::int64_t begin = 0;
  for (int rank = 0; rank < group.rank(); ++rank) {
    begin += sizes[static_cast<std::size_t>(rank)];
  }
  const std::int64_t count = sizes[static_cast<std::size_t>(group.rank())];
  const Tensor whole = logits.detach().clone().requires_grad_();
  const Tensor mine = logits.detach().narrow(dim, begin, count).clone().requires_grad_();
  const Tensor expected = F::cross_entropy(whole, target,
                                           F::CrossEntropyFuncOptions()
                                               .ignore_index(options.ignore_index())
                                               .label_smoothing(options.label_smoothing())
                                               .reduction(options.reduction()));
  const Tensor loss = vocab_parallel_cross_entropy(mine, target, group, options);
  expect_close(loss.detach(), expected.detach(), what + ": the loss");
  const Tensor seed = randn(expected.sizes().vec(), 77);
  loss.backward(seed.to(loss.scalar_type()));
  expected.backward(seed.to(expected.scalar_type()));
  expect_close(mine.grad(), whole.grad().narrow(dim, begin, count), what + ": the gradient");
}

}  // namespace

TEST_CASE("vocab_parallel_cross_entropy: loss and gradient of the whole vocabulary", "[parallel][tensor]") {
  for (const int size : {2, 3, 4}) {
    run_tensor_ranks(size, [](const ParallelContext& context) {
      const Group& group = context.group("tensor");
      for (const std::int64_t classes : {8, 5, 2}) {
        const Tensor logits = randn({6, classes}, classes, at::kDouble) * 3;
        Tensor target = randint(classes, {6}, 5);
        target[2] = -100;
        for (const double smoothing : {0.0, 0.1}) {
          for (const Reduction& reduction :
               {Reduction(torch::kMean), Reduction(torch::kSum), Reduction(torch::kNone)}) {
            compare(group, logits, target, Options().label_smoothing(smoothing).reduction(reduction), "rows");
          }
        }
        compare(group, logits, target.clamp_min(0), Options().ignore_index(1).num_classes(classes), "ignored class");
        compare(group, randn({classes}, 3), target[0], Options(), "one row");
        compare(group, randn({2, classes, 3}, 4), target.clamp_min(0).view({2, 3}), Options(), "positions");
        compare(group, randn({0, classes}, 4), target.slice(0, 0, 0), Options().reduction(torch::kSum), "no rows");
        compare(group, logits, at::full({6}, -100, at::kLong), Options(), "all ignored");
        compare(group, logits * 1000 + 1e5, target, Options(), "large logits");
        compare(group, logits.to(at::kFloat), target, Options(), "float32");
      }
    });
  }
}

TEST_CASE("vocab_parallel_cross_entropy: computes narrow logits in float32", "[parallel][tensor]") {
  run_tensor_ranks(2, [](const ParallelContext& context) {
    const Group& group = context.group("tensor");
    const Tensor logits = randn({4, 6}, 1, at::kBFloat16), target = randint(6, {4}, 2);
    const Tensor whole = logits.to(at::kFloat).requires_grad_();
    const Tensor mine = logits.narrow(1, 3 * group.rank(), 3).clone().requires_grad_();
    const Tensor expected = F::cross_entropy(whole, target);
    const Tensor loss = vocab_parallel_cross_entropy(mine, target, group);
    expect_close(loss.detach(), expected.detach(), "the loss in float32");
    loss.backward();
    expected.backward();
    expect_close(mine.grad(), whole.grad().narrow(1, 3 * group.rank(), 3).to(at::kBFloat16), "the gradient");
  });
}

TEST_CASE("vocab_parallel_cross_entropy: refuses other shapes, probabilities and classes outside",
          "[parallel][tensor]") {
  run_tensor_ranks(2, [](const ParallelContext& context) {
    const Group& group = context.group("tensor");
    const Tensor logits = at::zeros({4, 3});
    const auto text = [&](const Tensor& values, const Tensor& target, const Options& options) {
      try {
        vocab_parallel_cross_entropy(values, target, group, options);
      } catch (const danling::Error& error) {
        return std::string(error.what());
      }
      return std::string("none");
    };
    expect(text(logits, at::zeros({3}, at::kLong), {}) ==
               "[parallel.vocab_cross_entropy] expected targets of shape [4], got [3]",
           "the shape's error");
    expect(text(logits, at::zeros({4, 3}), {}) ==
               "[parallel.vocab_cross_entropy] expected classes as targets, got values of Float; targets that are "
               "probabilities need all classes: use gather_output",
           "the error of probabilities");
    expect(text(logits, at::zeros({4}, at::kLong), Options().num_classes(8)) ==
               danling::detail::concat("[parallel.vocab_cross_entropy] expected logits of 4 of 8 classes on rank ",
                                       group.rank(), " of 2, got 3"),
           "the error of classes");
  });
  for (const std::int64_t outside : {-1, 6}) {
    const std::string text = error_of<std::exception>([&] {
      run_tensor_ranks(2, [&](const ParallelContext& context) {
        vocab_parallel_cross_entropy(at::zeros({1, 3}), at::full({1}, outside, at::kLong), context.group("tensor"));
      });
    });
    CHECK(text.find("out of bounds") != std::string::npos);
  }
}

TEST_CASE("VocabParallelCrossEntropy: a runner's criterion, whole until it is sliced", "[parallel][tensor]") {
  VocabParallelCrossEntropy loss(Options().ignore_index(3));
  const danling::CriterionHandle criterion = loss;
  const Tensor logits = randn({4, 6}, 1), target = at::tensor({0, 3, 5, 3}, at::kLong);
  CHECK(criterion.ignore_index() == 3);
  CHECK(criterion.loss_normalizer(target) == 2);
  expect_close(criterion(logits, target),
               F::cross_entropy(logits, target, F::CrossEntropyFuncOptions().ignore_index(3)),
               "the loss of one process");
}

}  // namespace tensor_cross_entropy_test
