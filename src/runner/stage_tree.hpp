// Trees of modules with the names of a larger model.
#pragma once

#include <memory>
#include <string>

namespace torch::nn {
class Module;
}

namespace danling::inline v0::detail {

/// Registers `module` in `root` under a dotted name; creates the modules in between.
void adopt(torch::nn::Module& root, const std::string& name, const std::shared_ptr<torch::nn::Module>& module);
/// The module at a dotted path; creates missing modules.
torch::nn::Module& made_child(torch::nn::Module& root, const std::string& path);
/// Registers parameters, buffers and children of `from` in `into`; merges children of the same name.
void adopt(torch::nn::Module& into, const torch::nn::Module& from);

}  // namespace danling::inline v0::detail
