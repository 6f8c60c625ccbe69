#include <distributed/sum_tree.hpp>

#include <algorithm>
#include <bit>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {

std::vector<Subtree> subtrees_of_ranks(std::int64_t ranks, std::int64_t leaves) {
  check<DistributedError>(leaves > 0 && std::has_single_bit(static_cast<std::uint64_t>(leaves)), "sum_tree.ranks",
                          "expected a power of two of leaves, got ", leaves);
  check<DistributedError>(ranks > 0 && ranks <= leaves, "sum_tree.ranks", "expected 1 to ", leaves, " ranks for ",
                          leaves, " leaves, got ", ranks);
  std::vector<Subtree> out = {{0, leaves}};
  while (static_cast<std::int64_t>(out.size()) < ranks) {
    const auto largest = std::max_element(out.begin(), out.end(),
                                          [](const Subtree& a, const Subtree& b) { return a.size() < b.size(); });
    const std::int64_t middle = largest->begin + largest->size() / 2;
    const Subtree right = {middle, largest->end};
    largest->end = middle;
    out.insert(largest + 1, right);
  }
  return out;
}

std::vector<Subtree> subtrees_of_ranks(std::int64_t ranks) {
  std::vector<Subtree> out;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    out.push_back({rank, rank + 1});
  }
  return out;
}

// The node is the smallest aligned power of two of leaves that contains them.
std::size_t right_half(const std::vector<Subtree>& ranks, std::size_t begin, std::size_t end) {
  const std::int64_t last = ranks[end - 1].end - 1;
  const auto half = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(ranks[begin].begin ^ last)));
  const std::int64_t middle = last & -half;
  std::size_t at = begin;
  while (ranks[at].end <= middle) {
    ++at;
  }
  return at;
}

}  // namespace danling::inline v0::detail
