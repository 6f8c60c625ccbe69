#include <runner/stage_tree.hpp>

#include <torch/nn/module.h>

namespace danling::inline v0::detail {
namespace {

std::shared_ptr<torch::nn::Module> child_of(torch::nn::Module& root, const std::string& name) {
  const auto children = root.named_children();
  if (const auto* found = children.find(name)) {
    return *found;
  }
  return root.register_module(name, std::make_shared<torch::nn::Module>());
}

}  // namespace

torch::nn::Module& made_child(torch::nn::Module& root, const std::string& path) {
  if (path.empty()) {
    return root;
  }
  const auto dot = path.find('.');
  torch::nn::Module& child = *child_of(root, path.substr(0, dot));
  return dot == std::string::npos ? child : made_child(child, path.substr(dot + 1));
}

void adopt(torch::nn::Module& root, const std::string& name, const std::shared_ptr<torch::nn::Module>& module) {
  const auto dot = name.find('.');
  if (dot == std::string::npos) {
    root.register_module(name, module);
  } else {
    adopt(*child_of(root, name.substr(0, dot)), name.substr(dot + 1), module);
  }
}

void adopt(torch::nn::Module& into, const torch::nn::Module& from) {
  for (const auto& item : from.named_parameters(/*recurse=*/false)) {
    into.register_parameter(item.key(), item.value(), item.value().requires_grad());
  }
  for (const auto& item : from.named_buffers(/*recurse=*/false)) {
    into.register_buffer(item.key(), item.value());
  }
  const auto known = into.named_children();
  for (const auto& item : from.named_children()) {
    if (const auto* own = known.find(item.key()); own == nullptr) {
      into.register_module(item.key(), item.value());
    } else if (*own != item.value()) {
      adopt(**own, *item.value());
    }
  }
}

}  // namespace danling::inline v0::detail
