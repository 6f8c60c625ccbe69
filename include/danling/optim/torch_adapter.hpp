// Adapter for optimizers of torch::optim. Also include torch's header.
#pragma once

#include <memory>

#include <danling/optim/optimizer.hpp>

namespace torch::optim {
class Optimizer;
}

namespace danling::inline v0::optim {

/// Wraps any optimizer of torch::optim whose `step()` needs no closure. Learning rates and weight decay are
/// synchronized in both directions: a change on either side takes effect at the next `step()` (ours wins if both
/// changed). Add no groups afterwards. A divisor other than 1 costs one pass over the gradients. The state dict has
/// Python's layout for SGD, Adam, AdamW, RMSprop and Adagrad.
/// @throws ConfigError for a null pointer or LBFGS; for other types `state_dict` and `load_state_dict` throw
/// StateError.
std::shared_ptr<Optimizer> adapt_torch_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer);

}  // namespace danling::inline v0::optim
