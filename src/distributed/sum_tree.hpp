// The binary tree along which the numbers of all ranks are added.
#pragma once

#include <cstdint>
#include <vector>

namespace danling::inline v0::detail {

/// Leaves [begin, end) of a tree whose number of leaves is a power of two. A rank holds one whole subtree, so the sum
/// does not depend on how many ranks share the leaves.
struct Subtree {
  std::int64_t begin = 0;
  std::int64_t end = 1;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Subtree&) const = default;
};

/// The subtrees of `ranks` ranks in a tree of `leaves` leaves: the largest one is halved, the leftmost of equals first,
/// until there are enough. 3 ranks and 8 leaves: 2, 2 and 4.
/// @throws DistributedError unless `leaves` is a power of two and not below `ranks`.
std::vector<Subtree> subtrees_of_ranks(std::int64_t ranks, std::int64_t leaves);

/// The same where each rank is a leaf: 3 ranks are ((0, 1), 2).
std::vector<Subtree> subtrees_of_ranks(std::int64_t ranks);

/// The first rank of the right half of the node that ranks [begin, end) form.
std::size_t right_half(const std::vector<Subtree>& ranks, std::size_t begin, std::size_t end);

}  // namespace danling::inline v0::detail
