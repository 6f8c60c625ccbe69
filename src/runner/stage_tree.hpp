// Trees of modules with the names of a larger model.
#pragma once

#include <memory>
#include <string>

namespace torch::nn {
class Module;
}

namespace danling::inline v0::detail {

/// Registers `module` in `root` under a name with dots; modules in between are made.
void adopt(torch::nn::Module& root, const std::string& name, const std::shared_ptr<torch::nn::Module>& module);
/// The module at a path of names with dots; those that are missing are made.
torch::nn::Module& made_child(torch::nn::Module& root, const std::string& path);
/// Registers parameters, buffers and children of `from` in `into`, where both may have children of one name.
void adopt(torch::nn::Module& into, const torch::nn::Module& from);

}  // namespace danling::inline v0::detail
