// The tree along which ranks add, and sums along it.
#include "distributed/sum_tree.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

#include "distributed/tree_sum.hpp"

namespace sum_tree_test {

using danling::DistributedError;
using danling::Group;
using danling::detail::Subtree;
using danling::detail::subtrees_of_ranks;
using danling::detail::TreeSum;
using danling_test::error_of;

TEST_CASE("sum tree: each rank holds a whole subtree, and the largest is halved first", "[distributed]") {
  CHECK((subtrees_of_ranks(1, 8) == std::vector<Subtree>{{0, 8}}));
  CHECK((subtrees_of_ranks(3, 8) == std::vector<Subtree>{{0, 2}, {2, 4}, {4, 8}}));
  CHECK((subtrees_of_ranks(4, 4) == std::vector<Subtree>{{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
  CHECK((subtrees_of_ranks(5, 8) == std::vector<Subtree>{{0, 1}, {1, 2}, {2, 4}, {4, 6}, {6, 8}}));
  CHECK(error_of<DistributedError>([] { subtrees_of_ranks(2, 6); }) ==
        "[sum_tree.ranks] expected a power of two of leaves, got 6");
  CHECK(error_of<DistributedError>([] { subtrees_of_ranks(5, 4); }) ==
        "[sum_tree.ranks] expected 1 to 4 ranks for 4 leaves, got 5");
}

TEST_CASE("sum tree: a node of ranks has its right half at the middle of its leaves", "[distributed]") {
  const auto three = subtrees_of_ranks(3, 8);
  CHECK(danling::detail::right_half(three, 0, 3) == 2);
  CHECK(danling::detail::right_half(three, 0, 2) == 1);
  const auto leaves = subtrees_of_ranks(3);  // ((0, 1), 2)
  CHECK(danling::detail::right_half(leaves, 0, 3) == 2);
  const auto seven = subtrees_of_ranks(7);
  CHECK(danling::detail::right_half(seven, 0, 7) == 4);
  CHECK(danling::detail::right_half(seven, 4, 7) == 6);
}

/// Shard `v` of the test: numbers of very different size, whose float32 sum depends on the order.
std::vector<at::Tensor> shard(std::int64_t v, at::ScalarType dtype) {
  at::Tensor wide = at::zeros({3, 50}, at::kFloat);
  at::Tensor vector = at::zeros({7}, at::kDouble);
  for (std::int64_t i = 0; i < wide.numel(); ++i) {
    wide.view({-1})[i] = std::sin(static_cast<double>(31 * v + i)) * std::pow(4.0, static_cast<double>((v + i) % 7));
  }
  for (std::int64_t i = 0; i < vector.numel(); ++i) {
    vector[i] = std::cos(static_cast<double>(17 * v + i)) * std::pow(1000.0, static_cast<double>((v + i) % 5));
  }
  // -0 everywhere but in shard 3, which lacks the third tensor with all odd ones.
  return {wide.to(dtype), vector, v % 2 == 0 ? at::full({2}, -0.0) : at::Tensor(), at::Tensor()};
}

/// Pairs of neighbours, pairs of pairs and so on, written down directly.
std::vector<at::Tensor> by_hand(std::int64_t leaves, at::ScalarType dtype) {
  std::vector<std::vector<at::Tensor>> level;
  for (std::int64_t v = 0; v < leaves; ++v) {
    level.push_back(shard(v, dtype));
    level.back()[0] = level.back()[0].to(at::kFloat);
  }
  while (level.size() > 1) {
    std::vector<std::vector<at::Tensor>> next;
    for (std::size_t i = 0; i < level.size(); i += 2) {
      next.push_back({at::add(level[i][0], level[i + 1][0]), at::add(level[i][1], level[i + 1][1])});
    }
    level = next;
  }
  return level.front();
}

TEST_CASE("TreeSum: any number of ranks gives the bits of the tree that is written down", "[distributed]") {
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kBFloat16, at::kHalf);
  const bool shared = GENERATE(true, false);
  constexpr std::int64_t leaves = 8;
  const auto expected = by_hand(leaves, dtype);
  const auto body = [&](const Group& group) {
    TreeSum sum({at::zeros({3, 50}, dtype), at::zeros({7}, at::kDouble), at::zeros({2}), at::zeros({1})}, group,
                {.ranks = subtrees_of_ranks(group.size(), leaves), .shared_memory = shared});
    const Subtree own = subtrees_of_ranks(group.size(), leaves)[static_cast<std::size_t>(group.rank())];
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (std::int64_t v = own.begin; v < own.end; ++v) {
        sum.push(shard(v, dtype));
      }
      const auto got = sum.finish(/*any_lacking=*/true);
      danling_test::expect(at::equal(got[0], expected[0]) && at::equal(got[1], expected[1]), "the bits of the tree");
      danling_test::expect(!got[3].defined(), "no sum where no shard has a tensor");
      danling_test::expect(got[2].defined() && !std::signbit(got[2][0].item<double>()), "+0, as -0 + 0 is");
    }
    return sum.text();
  };
  CHECK(body(Group()) == "one process");
  for (const int size : {2, 3, 4}) {
    danling_test::check_ranks(danling_test::run_ranks(size, body),
                              shared ? "shared memory" : "collectives of the group");
  }
}

TEST_CASE("TreeSum: ranks without a shard of a step count as zeros", "[distributed]") {
  danling_test::check_ranks(
      danling_test::run_ranks(3,
                              [](const Group& group) {
                                TreeSum sum({at::zeros({2})}, group, {.ranks = subtrees_of_ranks(3, 4)});
                                if (group.rank() == 0) {
                                  sum.push({at::full({2}, 1.5)});
                                }
                                danling_test::expect(sum.lacks_any() == (group.rank() > 0), "lacks_any");
                                const auto got = sum.finish(/*any_lacking=*/true);
                                return danling::detail::concat(got[0][0].item<double>());
                              }),
      "1.5");
}

}  // namespace sum_tree_test
