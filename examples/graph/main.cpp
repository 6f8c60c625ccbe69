// Which rule grew this tree? A message passing network reads batches of graphs of different sizes: a batch type of the
// program.
//
//   graph                       88 % of the held-out trees in a second
//   graph --rounds 1            with one round of messages: 76 %
#include <algorithm>
#include <random>
#include <vector>

#include <torch/torch.h>

#include <danling/danling.hpp>

namespace dl = danling;
namespace nn = torch::nn;

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

struct GraphConfig : dl::RunnerConfig {
  std::int64_t width = 32, rounds = 3;

  GraphConfig() {
    seed = 1;
    num_threads = 1;
    epochs = 8;
    score_name = "acc";
    dataloader.batch_size = 32;
    optim.type = "adamw";
    optim.lr = 5e-3;
    sched.type = "cosine";
    sched.scaling = "numerical";
  }

  void fields(dl::Fields& f) override {
    f("width", width, "features of a node");
    f("rounds", rounds, "of messages between neighbours");
  }
};

struct NetImpl : nn::Module {
  explicit NetImpl(const GraphConfig& config) : start(register_parameter("start", torch::randn({config.width}))) {
    for (std::int64_t i = 0; i < config.rounds; ++i) {
      rounds->push_back(nn::Linear(2 * config.width, config.width));
    }
    register_module("rounds", rounds);
    head = register_module("head", nn::Linear(config.width, 3));
  }

  torch::Tensor forward(const Graphs& graphs) {
    auto nodes = start.expand({graphs.graph_of.size(0), -1});  // [V, C]: all nodes are alike
    for (auto& round : *rounds) {
      const auto heard = torch::zeros_like(nodes).index_add(0, graphs.to_node, nodes.index_select(0, graphs.from));
      nodes = torch::relu(round->as<nn::Linear>()->forward(torch::cat({nodes, heard}, 1)));
    }
    const auto sums = nodes.new_zeros({graphs.size(), nodes.size(1)}).index_add(0, graphs.graph_of, nodes);  // [G, C]
    const auto counts = graphs.graph_of.bincount({}, graphs.size()).unsqueeze(1);
    return head(sums / counts);  // [G, 3]
  }

  torch::Tensor start;
  nn::ModuleList rounds;
  nn::Linear head = nullptr;
};
TORCH_MODULE(Net);

class GraphRunner : public dl::BasicTorchRunner<Graphs> {
 public:
  explicit GraphRunner(const GraphConfig& config) : BasicTorchRunner(config) {
    datasets["train"] = Trees{1500, /*seed=*/1};
    datasets["val"] = Trees{300, /*seed=*/2};
    model = Net(config);
    criterion = nn::CrossEntropyLoss();
    using namespace dl::metrics;
    metrics = multiclass_metrics(3, {.mode = Mode::stream}, {multiclass_accuracy(3, {.average = Average::micro})});
  }
};

int main(int argc, char** argv) { return dl::run<GraphRunner, GraphConfig>(argc, argv); }
