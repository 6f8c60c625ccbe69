// all_to_all with gradients.
#include <danling/parallel/expert_exchange.hpp>

#include <torch/autograd.h>
#include <torch/types.h>

#include <danling/core/error.hpp>

#include <support/error.hpp>
#include <support/ranks.hpp>

namespace expert_exchange_test {
namespace {

using danling::Group;
using danling::parallel::all_to_all;
using danling_test::error_of;
using danling_test::expect;
using torch::Tensor;

/// Rank r sends r + s rows to rank s, all with the value 10 r + s.
struct Rows {
  explicit Rows(const Group& group) {
    std::vector<Tensor> parts, others;
    for (std::int64_t other = 0; other < group.size(); ++other) {
      sent.push_back(group.rank() + other);
      received.push_back(group.rank() + other);
      parts.push_back(torch::full({sent.back(), 2}, 10 * group.rank() + other, torch::kDouble));
      others.push_back(torch::full({sent.back(), 2}, 10 * other + group.rank(), torch::kDouble));
    }
    rows = torch::cat(parts);
    wanted = torch::cat(others);
  }
  std::vector<std::int64_t> sent, received;
  Tensor rows, wanted;
};

TEST_CASE("all_to_all: gradients return to the rank whose rows they are of", "[parallel][expert]") {
  Group::run_threads(3, [](const Group& group) {
    Rows rows(group);
    rows.rows.requires_grad_();
    const Tensor got = all_to_all(rows.rows, group, rows.sent, rows.received);
    expect(got.equal(rows.wanted), "the rows of all ranks, in their order");
    (got * got * (group.rank() + 1)).sum().backward();  // 2 (s + 1) times the row, of rank s
    Tensor wanted = rows.rows.detach() * 2;
    std::int64_t begin = 0;
    for (std::int64_t other = 0; other < group.size(); ++other) {
      wanted.narrow(0, begin, rows.sent[static_cast<std::size_t>(other)]).mul_(other + 1);
      begin += rows.sent[static_cast<std::size_t>(other)];
    }
    expect(rows.rows.grad().equal(wanted), "gradients of all ranks");
    const Tensor narrow = rows.rows.detach().to(torch::kBFloat16).t().contiguous().t();
    expect(all_to_all(narrow, group, rows.sent, rows.received).equal(rows.wanted.to(torch::kBFloat16)), "strided rows");
  });
  const Tensor alone = torch::ones({2, 1});
  CHECK(all_to_all(alone, Group(), {2}, {2}).is_same(alone));
}

TEST_CASE("all_to_all: counts that do not fit are errors, as are second derivatives", "[parallel][expert]") {
  CHECK_THAT(error_of<danling::DistributedError>([] {
               Group::run_threads(2,
                                  [](const Group& group) { all_to_all(torch::ones({3, 1}), group, {1, 1}, {1, 1}); });
             }),
             ContainsSubstring("expected 2 counts that add up to the rows, got 3 rows"));
  CHECK(error_of<danling::DistributedError>([] {
          Group::run_threads(2, [](const Group& group) { all_to_all(torch::ones({2, 1}), group, {1, 1}, {1, 2}); });
        }) == "[parallel.all_to_all] expected 3 rows (1, 2 of each rank), got 2");
  CHECK(error_of<danling::StateError>([] {
          Group::run_threads(2, [](const Group& group) {
            const Tensor rows = torch::ones({2, 1}).requires_grad_();
            const Tensor sum = all_to_all(rows, group, {1, 1}, {1, 1}).sum();
            torch::autograd::grad({sum}, {rows}, {}, true, /*create_graph=*/true);
          });
        }) ==
        "[parallel.all_to_all] expected a backward pass without create_graph, got one with it: second derivatives over "
        "several ranks are not implemented");
}

}  // namespace
}  // namespace expert_exchange_test
