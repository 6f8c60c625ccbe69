#include <parallel/pipeline_backward.hpp>

#include <unordered_map>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace danling::inline v0::parallel::detail {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using NodePtr = decltype(Edge::function);  // a std::shared_ptr before LibTorch 2.13
using Tensors = std::vector<at::Tensor>;

/// Roots and their gradients, as the engine takes them.
struct Roots {
  std::vector<Edge> edges;
  Tensors gradients;

  void add(const Edge& edge, const at::Tensor& gradient) {
    if (edge.is_valid() && gradient.defined()) {
      edges.push_back(edge);
      gradients.push_back(gradient);
    }
  }
};

Tensors run_engine(const Roots& roots, bool keep_graph, const std::vector<Edge>& outputs = {}) {
  return torch::autograd::Engine::get_default_engine().execute(roots.edges, roots.gradients, keep_graph,
                                                               /*create_graph=*/false,
                                                               /*accumulate_grad=*/outputs.empty(), outputs);
}

/// Finds the nodes that lead to one of `ends`. Not recursive: a graph may be deep.
class PathsTo {
 public:
  PathsTo(const std::vector<Edge>& roots, const std::vector<Edge>& ends) {
    for (const Edge& end : ends) {
      leads_[end.function.get()] = true;
    }
    std::vector<std::pair<Node*, std::size_t>> stack;
    const auto visit = [&](const Edge& edge) {
      Node* const node = edge.function.get();
      if (node != nullptr && leads_.emplace(node, false).second) {
        stack.emplace_back(node, 0);
      }
    };
    for (const Edge& root : roots) {
      visit(root);
      while (!stack.empty()) {
        auto& [node, next] = stack.back();
        const auto& edges = std::as_const(*node).next_edges();
        if (next < edges.size()) {
          visit(edges[next++]);
          continue;
        }
        bool leads = false;
        for (const Edge& edge : edges) {
          leads = leads || (edge.is_valid() && leads_.at(edge.function.get()));
        }
        leads_[node] = leads;
        stack.pop_back();
      }
    }
  }
  bool of(const Edge& edge) const { return edge.is_valid() && leads_.at(edge.function.get()); }
  /// Nodes on a path that also lead elsewhere.
  std::vector<NodePtr> forks() const {
    std::vector<NodePtr> out;
    for (const auto& [node, leads] : leads_) {
      bool fork = false;
      for (const Edge& edge : std::as_const(*node).next_edges()) {
        fork = fork || (edge.is_valid() && !leads_.at(edge.function.get()));
      }
      if (leads && fork) {
        out.push_back(node->getptr());
      }
    }
    return out;
  }

 private:
  std::unordered_map<Node*, bool> leads_;
};

/// Stores the gradients that reach a node, the first time.
class KeepGradients : public torch::autograd::FunctionPreHook {
 public:
  explicit KeepGradients(std::shared_ptr<Tensors> kept) : kept_(std::move(kept)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    if (const auto kept = std::exchange(kept_, nullptr)) {
      *kept = gradients;
    }
    return gradients;
  }

 private:
  std::shared_ptr<Tensors> kept_;
};

}  // namespace

StageGraph::StageGraph(const Tensors& outputs, Tensors inputs) : inputs_(std::move(inputs)) {
  for (const at::Tensor& output : outputs) {
    roots_.push_back(output.requires_grad() ? torch::autograd::impl::gradient_edge(output) : Edge());
  }
}

Tensors StageGraph::backward(const Tensors& gradients) {
  Roots roots;
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    roots.add(roots_[i], gradients[i]);
  }
  if (!roots.edges.empty()) {
    run_engine(roots, /*keep_graph=*/false);
  }
  Tensors out;
  for (at::Tensor& input : inputs_) {
    out.push_back(input.grad());
  }
  *this = StageGraph();
  return out;
}

Tensors StageGraph::backward_input(const Tensors& gradients) {
  Tensors out(inputs_.size());
  std::vector<Edge> ends;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].requires_grad()) {
      ends.push_back(torch::autograd::impl::gradient_edge(inputs_[i]));
      places.push_back(i);
    }
  }
  const PathsTo paths(roots_, ends);
  Roots now;
  Roots later;
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    (paths.of(roots_[i]) ? now : later).add(roots_[i], gradients[i]);
  }

  std::vector<NodePtr> forks;
  std::vector<std::shared_ptr<Tensors>> kept;
  if (!now.edges.empty()) {
    forks = paths.forks();
    for (const NodePtr& fork : forks) {
      kept.push_back(std::make_shared<Tensors>());
      fork->add_pre_hook(std::make_unique<KeepGradients>(kept.back()));
    }
    const Tensors found = run_engine(now, /*keep_graph=*/!forks.empty() || !later.edges.empty(), ends);
    for (std::size_t i = 0; i < found.size(); ++i) {
      out[places[i]] = found[i];
    }
  }
  for (std::size_t i = 0; i < forks.size(); ++i) {
    // The second run begins at the forks. Tensor hooks have already changed the stored gradients. Without its edges to
    // the inputs a fork computes nothing for them, and no fork reaches another.
    forks[i]->tensor_pre_hooks().clear();
    for (Edge& edge : forks[i]->next_edges()) {
      if (paths.of(edge)) {
        edge = Edge();
      }
    }
    for (std::size_t place = 0; place < kept[i]->size(); ++place) {
      later.add(Edge(forks[i], static_cast<std::uint32_t>(place)), (*kept[i])[place]);
    }
  }
  *this = StageGraph();
  weight_roots_ = std::move(later.edges);
  weight_gradients_ = std::move(later.gradients);
  return out;
}

void StageGraph::backward_weight() {
  if (!weight_roots_.empty()) {
    run_engine({std::move(weight_roots_), std::move(weight_gradients_)}, /*keep_graph=*/false);
  }
  *this = StageGraph();
}

}  // namespace danling::inline v0::parallel::detail
