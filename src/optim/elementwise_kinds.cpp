// The classes of elementwise optimizers: each is a rule.
#include <utility>

#include <danling/optim/adagrad.hpp>
#include <danling/optim/adam.hpp>
#include <danling/optim/sgd.hpp>

#include <optim/rule.hpp>

namespace danling::inline v0::optim {

using Params = std::vector<at::Tensor>;
using Names = std::vector<std::string>;

const OptimizerOptions& SGD::defaults() { return detail::sgd_rule().defaults; }
const OptimizerOptions& ASGD::defaults() { return detail::asgd_rule().defaults; }
const OptimizerOptions& Rprop::defaults() { return detail::rprop_rule().defaults; }
const OptimizerOptions& Lion::defaults() { return detail::lion_rule().defaults; }
const OptimizerOptions& Adadelta::defaults() { return detail::adadelta_rule().defaults; }
const OptimizerOptions& Adagrad::defaults() { return detail::adagrad_rule().defaults; }
const OptimizerOptions& RMSprop::defaults() { return detail::rmsprop_rule().defaults; }
const OptimizerOptions& Adam::defaults() { return detail::adam_rule().defaults; }
const OptimizerOptions& AdamW::defaults() { return detail::adamw_rule().defaults; }
const OptimizerOptions& Adamax::defaults() { return detail::adamax_rule().defaults; }
const OptimizerOptions& NAdam::defaults() { return detail::nadam_rule().defaults; }
const OptimizerOptions& RAdam::defaults() { return detail::radam_rule().defaults; }

SGD::SGD(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::sgd_rule(), std::move(params), options, std::move(names)) {}
ASGD::ASGD(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::asgd_rule(), std::move(params), options, std::move(names)) {}
Rprop::Rprop(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::rprop_rule(), std::move(params), options, std::move(names)) {}
Lion::Lion(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::lion_rule(), std::move(params), options, std::move(names)) {}
Adadelta::Adadelta(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::adadelta_rule(), std::move(params), options, std::move(names)) {}
Adagrad::Adagrad(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::adagrad_rule(), std::move(params), options, std::move(names)) {}
RMSprop::RMSprop(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::rmsprop_rule(), std::move(params), options, std::move(names)) {}
Adam::Adam(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::adam_rule(), std::move(params), options, std::move(names)) {}
AdamW::AdamW(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::adamw_rule(), std::move(params), options, std::move(names)) {}
Adamax::Adamax(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::adamax_rule(), std::move(params), options, std::move(names)) {}
NAdam::NAdam(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::nadam_rule(), std::move(params), options, std::move(names)) {}
RAdam::RAdam(Params params, const OptimizerOptions& options, Names names)
    : ElementwiseOptimizer(detail::radam_rule(), std::move(params), options, std::move(names)) {}

std::shared_ptr<SGD> sgd(Params params, const OptimizerOptions& options) {
  return std::make_shared<SGD>(std::move(params), options);
}
std::shared_ptr<Adam> adam(Params params, const OptimizerOptions& options) {
  return std::make_shared<Adam>(std::move(params), options);
}
std::shared_ptr<AdamW> adamw(Params params, const OptimizerOptions& options) {
  return std::make_shared<AdamW>(std::move(params), options);
}

}  // namespace danling::inline v0::optim
