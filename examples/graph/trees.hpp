// Trees of different sizes, and batches of them: a sample type and a batch type of the program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <torch/torch.h>

struct Tree {
  std::vector<std::int64_t> parents;  // of nodes 1, 2, ...
  std::int64_t rule;
};

/// Graphs side by side: nodes are numbered through, `graph_of` has the graph of each node.
struct Graphs {
  torch::Tensor from, to_node;  // int64 [E]: the ends of each edge, in both directions
  torch::Tensor graph_of;       // int64 [V]
  torch::Tensor target;         // int64 [G]

  std::int64_t size() const { return target.size(0); }
  Graphs to(torch::Device device) const {
    return {from.to(device), to_node.to(device), graph_of.to(device), target.to(device)};
  }
};

/// Loaders call it to make a batch of samples.
Graphs collate(const std::vector<Tree>& trees) {
  std::vector<std::int64_t> from, to_node, graph_of, target;
  for (const Tree& tree : trees) {
    const std::int64_t first = std::ssize(graph_of), size = std::ssize(tree.parents) + 1;
    for (std::int64_t node = 1; node < size; ++node) {
      const std::int64_t parent = first + tree.parents[static_cast<std::size_t>(node - 1)];
      from.insert(from.end(), {first + node, parent});
      to_node.insert(to_node.end(), {parent, first + node});
    }
    graph_of.insert(graph_of.end(), static_cast<std::size_t>(size), std::ssize(target));
    target.push_back(tree.rule);
  }
  return {torch::tensor(from), torch::tensor(to_node), torch::tensor(graph_of), torch::tensor(target)};
}

/// Trees of 20 to 60 nodes, each grown by one of three rules.
struct Trees {
  std::int64_t count, seed;

  std::int64_t size() const { return count; }
  Tree get(std::int64_t index) const {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed * 1'000'003 + index));
    const auto draw = [&](std::int64_t below) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(below));
    };
    Tree tree{{}, index % 3};
    std::vector<std::int64_t> ends = {0};  // each node once, and once more for each of its edges
    for (std::int64_t node = 1, size = 20 + draw(41); node < size; ++node) {
      const std::int64_t parent = tree.rule == 0   ? draw(node)                                     // any node
                                  : tree.rule == 1 ? std::max<std::int64_t>(0, node - 1 - draw(4))  // a late one
                                                   : ends[static_cast<std::size_t>(draw(std::ssize(ends)))];  // a hub
      tree.parents.push_back(parent);
      ends.insert(ends.end(), {node, node, parent});
    }
    return tree;
  }
};
