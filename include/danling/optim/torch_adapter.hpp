// Adapter for optimizers of torch::optim. Include torch's header beside this one.
#pragma once

#include <memory>

#include <danling/optim/optimizer.hpp>

namespace torch::optim {
class Optimizer;
}

namespace danling::inline v0::optim {

/// Wraps any optimizer of torch::optim whose `step()` needs no closure. Learning rates are synchronised both ways: a
/// change on either side applies from the next `step()` on (ours, if both changed). A divisor other than 1 costs one
/// pass over the gradients. The state dict has Python's layout for SGD, Adam, AdamW, RMSprop and Adagrad.
/// @throws ConfigError for a null pointer or LBFGS; `state_dict` and `load_state_dict` of other kinds throw StateError.
std::shared_ptr<Optimizer> adapt_torch_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer);

}  // namespace danling::inline v0::optim
