// Gathers and exchanges that a group starts and ends later, several at once.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <danling/core/error.hpp>
#include <danling/distributed/group.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace started_collectives_test {
namespace {

using danling::DistributedError;
using danling::Group;
using danling::Work;
using danling_test::check_ranks;
using danling_test::error_of;
using danling_test::expect;
using danling_test::run_ranks;

TEST_CASE("Group::start_all_gather: several in flight keep their tensors apart, small and large", "[distributed]") {
  for (const int ranks : {1, 3}) {
    check_ranks(run_ranks(ranks,
                          [](const Group& group) {
                            std::vector<std::vector<at::Tensor>> parts;
                            std::vector<at::Tensor> mine;
                            std::vector<Work> works;
                            for (const std::int64_t size : {3, 1000, 0, 5, 300000}) {
                              mine.push_back(at::full({size}, 10.0 * static_cast<double>(size) + group.rank()));
                              parts.emplace_back();
                              for (int rank = 0; rank < group.size(); ++rank) {
                                parts.back().push_back(at::empty_like(mine.back()));
                              }
                              works.push_back(group.start_all_gather(parts.back(), mine.back()));
                            }
                            for (std::size_t at = works.size(); at-- > 0;) {
                              works[at].wait();
                              for (int rank = 0; rank < group.size(); ++rank) {
                                const at::Tensor& part = parts[at][static_cast<std::size_t>(rank)];
                                expect(part.eq(10.0 * static_cast<double>(part.numel()) + rank).all().item<bool>(),
                                       "the numbers of each rank");
                              }
                            }
                            return std::string("equal");
                          }),
                "equal");
  }
}

TEST_CASE("Group::start_all_to_all_single: rows go to their ranks, also where a rank has none", "[distributed]") {
  check_ranks(
      run_ranks(3,
                [](const Group& group) {
                  // Rank r sends r + to rows to rank `to`, and the values say who sent them to whom.
                  std::vector<std::int64_t> sent, received;
                  std::vector<at::Tensor> rows, expected;
                  for (int other = 0; other < 3; ++other) {
                    sent.push_back(group.rank() + other);
                    received.push_back(group.rank() + other);
                    rows.push_back(at::full({sent.back(), 2}, 10.0 * group.rank() + other, at::kDouble));
                    expected.push_back(at::full({received.back(), 2}, 10.0 * other + group.rank(), at::kDouble));
                  }
                  const at::Tensor output = at::empty_like(at::cat(expected));
                  Work first = group.start_all_to_all_single(output, at::cat(rows), received, sent);
                  const at::Tensor again = at::empty_like(output);
                  Work second = group.start_all_to_all_single(again, at::cat(rows), received, sent);
                  second.wait();
                  first.wait();
                  expect(output.equal(at::cat(expected)) && again.equal(output), "the rows of each rank");
                  return std::string("equal");
                }),
      "equal");
}

TEST_CASE("Group: what cannot be started is refused with the shapes", "[distributed]") {
  const Group alone;
  const at::Tensor two = at::full({2}, 1.0, at::kFloat);
  CHECK(error_of<DistributedError>([&] { alone.start_all_gather({}, two); }) ==
        "[group.start_all_gather] expected a tensor for each of 1 ranks, got 0");
  CHECK(error_of<DistributedError>([&] { alone.start_all_gather({at::full({3}, 1.0, at::kFloat)}, two); }) ==
        "[group.start_all_gather] expected tensors of one shape, got Float [3] and Float [2]");
  CHECK(error_of<DistributedError>([&] { alone.start_all_gather({at::full({2}, 1.0, at::kDouble)}, two); }) ==
        "[group.start_all_gather] expected contiguous tensors of one dtype and device, got Double [2] on cpu and "
        "Float [2] on cpu");
  CHECK(error_of<DistributedError>([&] { alone.start_all_to_all_single(two, two, {2}, {1}); }) ==
        "[group.start_all_to_all_single] expected 1 counts that add up to the rows, got 1 for Float [2] and 2 for "
        "Float [2]");
}

}  // namespace
}  // namespace started_collectives_test
