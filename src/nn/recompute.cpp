#include <danling/nn/recompute.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <unordered_set>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <danling/core/error.hpp>
#include <danling/tape/observer.hpp>
#include <danling/tensors/nested_tensor.hpp>

namespace danling::inline v0::nn {
namespace detail {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using NodePtr = decltype(Edge::function);  // a std::shared_ptr before LibTorch 2.13

template <class N, class... Args>
NodePtr make_node(Args&&... args) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<Node>>) {
    return std::make_shared<N>(std::forward<Args>(args)...);
  } else {
    return c10::make_intrusive<N>(std::forward<Args>(args)...);
  }
}

using Tensors = Recompute::Tensors;

std::vector<at::Generator>& own_generators() {
  static std::vector<at::Generator> generators;
  return generators;
}

// ---- the surroundings of the first run ------------------------------------------------------------------------------

/// States of the generators that a run may draw from.
class Generators {
 public:
  explicit Generators(std::vector<at::Generator> generators) : generators_(std::move(generators)) {
    for (auto& generator : generators_) {
      const std::lock_guard lock(generator.mutex());
      states_.push_back(generator.get_state());
    }
  }
  const std::vector<at::Generator>& generators() const { return generators_; }
  void restore() {
    for (std::size_t i = 0; i < generators_.size(); ++i) {
      const std::lock_guard lock(generators_[i].mutex());
      generators_[i].set_state(states_[i]);
    }
  }

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

/// The generators of the CPU, of the accelerator devices in use, and of the program.
std::vector<at::Generator> generators_in_use() {
  std::vector<at::Generator> out{at::detail::getDefaultCPUGenerator()};
  if (const auto accelerator = at::getAccelerator()) {
    const auto& hooks = at::globalContext().getAcceleratorHooksInterface(accelerator);
    for (c10::DeviceIndex index = 0; index < hooks.deviceCount(); ++index) {
      if (hooks.hasPrimaryContext(index)) {
        out.push_back(at::globalContext().defaultGenerator(at::Device(*accelerator, index)));
      }
    }
  }
  out.insert(out.end(), own_generators().begin(), own_generators().end());
  return out;
}

/// Autocast state of the CPU and of the accelerator.
class Autocast {
 public:
  Autocast() : cached_(at::autocast::is_autocast_cache_enabled()) {
    std::vector<c10::DeviceType> types{at::kCPU};
    if (const auto accelerator = at::getAccelerator()) {
      types.push_back(*accelerator);
    }
    for (const auto type : types) {
      devices_.push_back({type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)});
    }
  }
  void set() const {
    for (const auto& device : devices_) {
      at::autocast::set_autocast_enabled(device.type, device.enabled);
      at::autocast::set_autocast_dtype(device.type, device.dtype);
    }
    at::autocast::set_autocast_cache_enabled(cached_);
  }

 private:
  struct Device {
    c10::DeviceType type;
    bool enabled;
    c10::ScalarType dtype;
  };
  std::vector<Device> devices_;
  bool cached_;
};

/// Sets the autocast state of the first run during its lifetime.
class AutocastScope {
 public:
  explicit AutocastScope(const Autocast& wanted) {
    wanted.set();
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    before_.set();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  Autocast before_;
};

/// Restores the generators and the module's buffers (running averages) at destruction.
class Untouched {
 public:
  Untouched(const std::vector<at::Generator>& generators, const torch::nn::Module* module) : generators_(generators) {
    if (module != nullptr) {
      for (const auto& buffer : module->buffers()) {
        if (buffer.defined()) {
          // Another tensor with the same memory: its version counter differs from that of the buffer, which a graph may
          // have saved.
          const at::Tensor memory = buffer.variable_data();
          buffers_.emplace_back(memory, memory.clone());
        }
      }
    }
  }
  ~Untouched() {
    const c10::NoGradGuard no_grad;
    generators_.restore();
    for (auto& [buffer, before] : buffers_) {
      buffer.copy_(before);
    }
  }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

 private:
  Generators generators_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
};

// ---- the graph of a run ---------------------------------------------------------------------------------------------

/// Separates the nodes that a run creates from earlier nodes.
class Interior {
 public:
  Interior() : thread_(at::RecordFunction::currentThreadId()), first_(at::sequence_number::peek()) {}
  bool contains(const Node& node) const {
    return node.thread_id() == thread_ && node.sequence_nr() >= first_ && !is_leaf(node) && !casts_leaf(node);
  }

  static bool is_leaf(const Node& node) { return node.sequence_nr() == std::numeric_limits<std::uint64_t>::max(); }
  /// The cast of a parameter, which autocast may share between this run and others. It stores no activation.
  static bool casts_leaf(const Node& node) {
    return node.num_outputs() == 1 && node.next_edge(0).is_valid() && is_leaf(*node.next_edge(0).function) &&
           node.name() == "ToCopyBackward0";
  }

 private:
  std::uint64_t thread_, first_;
};

/// An edge from a node of the run to a node outside of it.
struct Exit {
  Node* from;
  std::size_t index;
  Edge to;
};

/// The exits of a run, in autograd's order, so that gradients are added in the same order.
std::vector<Exit> find_exits(const Interior& interior, const std::vector<Edge>& roots) {
  std::vector<Exit> exits;
  std::unordered_set<Node*> seen;
  std::vector<Node*> open;
  for (const Edge& root : roots) {
    if (seen.insert(root.function.get()).second) {
      open.push_back(root.function.get());
    }
  }
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    for (std::size_t i = 0; i < node->num_outputs(); ++i) {
      const Edge& edge = node->next_edge(i);
      if (!edge.is_valid()) {
        continue;
      }
      if (!interior.contains(*edge.function)) {
        exits.push_back({node, i, edge});
      } else if (seen.insert(edge.function.get()).second) {
        open.push_back(edge.function.get());
      }
    }
  }
  std::sort(exits.begin(), exits.end(), [](const Exit& a, const Exit& b) {
    return a.from->sequence_nr() != b.from->sequence_nr() ? a.from->sequence_nr() > b.from->sequence_nr()
                                                          : a.index < b.index;
  });
  return exits;
}

/// The tensors that receive gradients from the run; a node of the run created each of them.
std::vector<Edge> find_roots(const Interior& interior, const std::vector<at::Tensor*>& outputs) {
  std::vector<Edge> roots;
  for (at::Tensor* output : outputs) {
    if (output->requires_grad()) {
      if (output->is_leaf() || !interior.contains(*output->grad_fn())) {
        *output = at::alias(*output);
      }
      roots.push_back(torch::autograd::impl::gradient_edge(*output));
    }
  }
  return roots;
}

/// Identity of an exit's target, which the node of the first run keeps alive.
struct Target {
  explicit Target(const Edge& edge) : node(edge.function.get()), input(edge.input_nr) {
    if (Interior::casts_leaf(*node)) {
      dtype = node->input_metadata(0).options().dtype();
      node = node->next_edge(0).function.get();
    }
  }
  bool operator==(const Target&) const = default;

  Node* node;
  std::uint32_t input;
  caffe2::TypeMeta dtype;  // if the leaf is cast: the dtype of the cast
};

/// Ends the gradient at an exit of the second run; a second derivative passes through.
class ExitNode final : public Node {
 public:
  explicit ExitNode(const Edge& to) : Node(torch::autograd::edge_list{behind(to)}) {
    input_metadata_.push_back(to.function->input_metadata(to.input_nr));
  }
  std::string name() const override { return "danling::RecomputeExit"; }

 private:
  /// Chained exits would be further from the leaves than earlier nodes, which autograd would then leave out.
  static const Edge& behind(const Edge& to) {
    const auto* exit = dynamic_cast<const ExitNode*>(to.function.get());
    return exit == nullptr ? to : exit->next_edge(0);
  }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
};

class RecomputeNode final : public Node {
 public:
  RecomputeNode(torch::autograd::edge_list&& exits, const Tensors& inputs, std::function<Tensors(const Tensors&)> again,
                Generators generators, const Autocast& autocast, std::shared_ptr<const torch::nn::Module> module)
      : Node(std::move(exits)),
        again_(std::move(again)),
        generators_(std::move(generators)),
        autocast_(autocast),
        module_(std::move(module)) {
    for (const at::Tensor& input : inputs) {
      inputs_.emplace_back(input, /*is_output=*/false);
    }
    for (const Edge& edge : next_edges()) {
      targets_.emplace_back(edge);
    }
  }
  std::string name() const override { return "danling::Recompute"; }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    inputs_.clear();
    again_ = nullptr;
    module_ = nullptr;
  }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  /// Inserts an ExitNode at each exit of the second run. @return by position, the exits that need a gradient
  std::vector<std::pair<std::size_t, Edge>> cut(const std::vector<Exit>& exits) const;

  std::vector<torch::autograd::SavedVariable> inputs_;
  std::vector<Target> targets_;  // of the edges; an enclosing recompute replaces the edges
  std::function<Tensors(const Tensors&)> again_;
  Generators generators_;
  Autocast autocast_;
  std::shared_ptr<const torch::nn::Module> module_;
};

[[noreturn]] void fail_other(const char* what) {
  fail<StateError>("nn.recompute", "expected a function that does the same in its second run, got other ", what,
                   "; it must not depend on state that changed after the first run");
}

torch::autograd::variable_list RecomputeNode::apply(torch::autograd::variable_list&& gradients) {
  const std::lock_guard lock(mutex_);
  check<StateError>(again_ != nullptr, "nn.recompute",
                    "expected one backward pass, got another; the first one needs retain_graph");
  const bool create_graph = c10::GradMode::is_enabled();
  Tensors inputs;
  for (const auto& input : inputs_) {
    inputs.push_back(input.unpack());
  }
  std::vector<Edge> roots;
  std::vector<Exit> exits;
  {
    const c10::AutoGradMode enabled(true);
    const Untouched untouched(generators_.generators(), module_.get());
    generators_.restore();
    const AutocastScope autocast(autocast_);
    const Interior interior;
    Tensors outputs = again_(inputs);
    std::vector<at::Tensor*> addresses;
    for (at::Tensor& output : outputs) {
      addresses.push_back(&output);
    }
    roots = find_roots(interior, addresses);
    exits = find_exits(interior, roots);
  }
  if (roots.size() != gradients.size()) {
    fail_other("results with gradients");
  }
  const auto wanted = cut(exits);
  torch::autograd::edge_list from, to;
  torch::autograd::variable_list seeds, result(num_outputs());
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (gradients[i].defined()) {
      from.push_back(roots[i]);
      seeds.push_back(std::move(gradients[i]));
    }
  }
  for (const auto& exit : wanted) {
    to.push_back(exit.second);
  }
  if (from.empty() || to.empty()) {
    return result;
  }
  auto found = torch::autograd::Engine::get_default_engine().execute(from, seeds, /*keep_graph=*/create_graph,
                                                                     create_graph, /*accumulate_grad=*/false, to);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    result[wanted[i].first] = std::move(found[i]);
  }
  return result;
}

std::vector<std::pair<std::size_t, Edge>> RecomputeNode::cut(const std::vector<Exit>& exits) const {
  if (exits.size() != num_outputs()) {
    fail_other("tensors from outside");
  }
  std::vector<std::pair<std::size_t, Edge>> wanted;
  for (std::size_t i = 0; i < exits.size(); ++i) {
    if (!(Target(exits[i].to) == targets_[i])) {
      fail_other("tensors from outside");
    }
    const Edge edge(make_node<ExitNode>(next_edge(i)), 0);
    exits[i].from->next_edges()[exits[i].index] = edge;
    if (task_should_compute_output(i)) {
      wanted.emplace_back(i, edge);
    }
  }
  return wanted;
}

}  // namespace

// ---- one call -------------------------------------------------------------------------------------------------------

struct Recompute::Context {
  explicit Context(std::shared_ptr<const torch::nn::Module> given) : module(std::move(given)) {}
  std::shared_ptr<const torch::nn::Module> module;
  Generators generators{generators_in_use()};
  Autocast autocast;
  Interior interior;
};

Recompute::Recompute(std::shared_ptr<const torch::nn::Module> module)
    : context_(std::make_unique<Context>(std::move(module))) {
  tape::mark_unrecordable("activation recompute restores generators");
}
Recompute::~Recompute() = default;

void Recompute::read(const at::Tensor& input) {
  if (NestedTensor::is_nested(input)) {
    input.detach();
  }
}

void Recompute::finish(const std::vector<at::Tensor*>& outputs, Tensors inputs,
                       std::function<Tensors(const Tensors&)> again) {
  const std::vector<Edge> roots = find_roots(context_->interior, outputs);
  if (roots.empty()) {
    return;
  }
  torch::autograd::edge_list edges;
  for (const Exit& exit : find_exits(context_->interior, roots)) {
    edges.push_back(exit.to);
  }
  const auto node =
      make_node<RecomputeNode>(std::move(edges), inputs, std::move(again), std::move(context_->generators),
                               context_->autocast, std::move(context_->module));
  for (at::Tensor* output : outputs) {
    if (output->requires_grad()) {
      *output = output->detach();  // frees the first run's graph, and with it the activations
      torch::autograd::create_gradient_edge(*output, node);
    }
  }
}

}  // namespace detail

void restore_in_recompute(at::Generator generator) { detail::own_generators().push_back(std::move(generator)); }

Recomputable::~Recomputable() = default;

std::shared_ptr<const torch::nn::Module> Recomputable::as_module() const {
  const auto* module = dynamic_cast<const torch::nn::Module*>(this);
  return module == nullptr ? nullptr : module->shared_from_this();
}

}  // namespace danling::inline v0::nn
