// An optimizer of torch::optim in the place of one of ours. Include torch's own header beside this one.
#pragma once

#include <memory>

#include <danling/optim/optimizer.hpp>

namespace torch::optim {
class Optimizer;
}

namespace danling::inline v0::optim {

/// Wraps any optimizer of torch::optim whose `step()` needs no closure. Learning rates go both ways: a rate changed on
/// either side holds from the next `step()` on (ours, where both changed). Gradients are divided by one pass over them
/// when the divisor is not 1. The state dict has Python's layout for SGD, Adam, AdamW, RMSprop and Adagrad.
/// @throws ConfigError for a null pointer or LBFGS; `state_dict` and `load_state_dict` of other kinds throw StateError.
std::shared_ptr<Optimizer> adapt(std::shared_ptr<torch::optim::Optimizer> optimizer);

}  // namespace danling::inline v0::optim
