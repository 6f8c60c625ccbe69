#include "runner/adapters.hpp"

#include <danling/optim/build.hpp>

namespace danling::inline v0 {

void TorchRunnerBase::Adapters::freeze() {
  const OptimConfig& optim = runner_.config().optim;
  NamedTensors common = runner_.model.named_parameters();
  for (const auto& [name, handle] : runner_.models) {
    const auto own = optim.models.find(name);
    const NamedTensors parameters = handle.named_parameters();
    if (own != optim.models.end() && own->second.freeze) {
      danling::optim::freeze(*own->second.freeze, parameters, concat("optim.", name, ".freeze"));
    } else {
      common.insert(common.end(), parameters.begin(), parameters.end());
    }
  }
  if (optim.freeze) {
    danling::optim::freeze(*optim.freeze, common);
  }
}

std::shared_ptr<optim::Optimizer> TorchRunnerBase::Adapters::build_optimizer(optim::OptimizerSpec spec,
                                                                             const ModelHandle& model,
                                                                             NamedTensors parameters,
                                                                             std::vector<std::string>& warnings) {
  if (spec.freeze || model.lora() != nullptr) {
    const bool some = !parameters.empty();
    std::erase_if(parameters, [](const auto& item) { return !item.second.requires_grad(); });
    check<ConfigError>(!parameters.empty() || !some, "runner.build_optimizer",
                       "expected parameters to train, got none that ", spec.section, ".freeze leaves");
    spec.freeze.reset();  // a common pattern may match only parameters of other models
  }
  return optim::build_optimizer(spec, parameters, &warnings);
}

}  // namespace danling::inline v0
