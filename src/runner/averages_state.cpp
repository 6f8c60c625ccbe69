// Averages of the weights in a checkpoint: the weights under 'ema' and 'swa', their counts under 'averages'.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include <danling/telemetry/logger.hpp>

#include "runner/averages.hpp"

namespace danling::inline v0 {

void TorchRunnerBase::Averages::save(const std::string& name, State& part) {
  if (runner_.averages_ == nullptr) {
    return;
  }
  const auto found = all().models.find(name);
  if (found == all().models.end()) {
    return;
  }
  auto& averages = found->second;
  State counters = State::Map();
  const auto put = [&](const char* key, const optim::WeightAverage& average) {
    State own = average.state_dict();
    part[key] = own.at("weights").is_null() ? State() : weights_of(average);
    own.map().erase("weights");
    counters[key] = std::move(own);
  };
  if (averages.ema) {
    put("ema", *averages.ema);
  }
  if (averages.swa) {
    put("swa", *averages.swa);
    counters["swa"]["has_statistics"] = averages.has_statistics;
    counters["swa"]["scheduler"] = averages.swa_scheduler ? averages.swa_scheduler->state_dict() : State();
    counters["swa"]["rates"] = State::List(averages.rates.begin(), averages.rates.end());
  }
  const auto* evaluated = averages.evaluated();
  counters["evaluated"] = evaluated == nullptr ? "" : averages.swa && evaluated == &*averages.swa ? "swa" : "ema";
  part["averages"] = std::move(counters);
}

void TorchRunnerBase::Averages::load(const std::string& name, const State& part) {
  if (runner_.averages_ == nullptr) {
    return;
  }
  const auto found = all().models.find(name);
  if (found == all().models.end()) {
    return;
  }
  auto& averages = found->second;
  const State* counters = part.find("averages");
  if (averages.ema && !runner_.excluded_from_loading("ema")) {
    load(name, "ema", *averages.ema, part, counters);
  }
  if (averages.swa && !runner_.excluded_from_loading("swa")) {
    // An exported model has one average, that of its evaluation.
    const bool exported = counters == nullptr && part.find("swa") == nullptr && !averages.ema;
    load(name, exported ? "ema" : "swa", *averages.swa, part, counters);
    const State* own = counters != nullptr ? counters->find("swa") : nullptr;
    const State* known = own != nullptr ? own->find("has_statistics") : nullptr;
    averages.has_statistics = known != nullptr ? known->boolean() : averages.swa->has_average();
    load_schedule(name, averages, own);
  }
}

void TorchRunnerBase::Averages::load(const std::string& name, const std::string& key, optim::WeightAverage& average,
                                     const State& part, const State* counters) {
  const State* weights = part.find(key);
  const State* counts = counters != nullptr && counters->is_map() ? counters->find(key) : nullptr;
  const bool has_weights = weights != nullptr && weights->is_map();
  const std::int64_t position = key == "swa" ? this->position() : runner_.state_.train.global_step;
  State own;
  own["weights"] = has_weights ? own_parts(name, *weights) : State();
  own["n_averaged"] = has_weights ? std::max<std::int64_t>(position, 1) : 0;  // of a program or another release
  own["updates"] = position;
  for (const char* count : {"n_averaged", "updates", "left_out"}) {
    if (const State* saved = counts != nullptr ? counts->find(count) : nullptr) {
      own[count] = *saved;
    }
  }
  average.load_state_dict(own);
  if (counts == nullptr && !has_weights && position > 0) {
    runner_.logger().info(
        concat(key, ": the checkpoint has no average of the weights; a new one begins with the loaded weights"));
  }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

NamedTensors detail::trained_state(const Parallelism& parallelism, const ModelHandle& model) {
  std::map<const c10::TensorImpl*, at::Tensor> parts;
  const NamedTensors parameters = model.named_parameters(), trained = parallelism.trained_parameters(model);
  for (std::size_t at = 0; at < parameters.size(); ++at) {
    parts.emplace(parameters[at].second.unsafeGetTensorImpl(), trained[at].second);
  }
  NamedTensors out = model.named_state();
  for (auto& [name, tensor] : out) {
    const auto found = parts.find(tensor.unsafeGetTensorImpl());
    tensor = found != parts.end() ? found->second : tensor;
  }
  return out;
}

State TorchRunnerBase::Averages::gathered(const std::string& name, const State& weights) {
  const Parallelism& parallelism = runner_.parallelism();
  State out = State::Map();
  for (const auto& [key, trained] :
       detail::trained_state(parallelism, name.empty() ? runner_.model : runner_.models.at(name))) {
    out[key] = parallelism.whole_of(trained, weights.at(key).tensor());
  }
  return out;
}

State TorchRunnerBase::Averages::own_parts(const std::string& name, const State& weights) {
  const Parallelism& parallelism = runner_.parallelism();
  State out(weights);
  if (parallelism.splits_parameters()) {
    for (const auto& [key, trained] :
         detail::trained_state(parallelism, name.empty() ? runner_.model : runner_.models.at(name))) {
      if (const State* whole = weights.find(key); whole != nullptr && whole->is_tensor()) {
        out[key] = parallelism.part_of(trained, whole->tensor());
      }
    }
  }
  return out;
}

State TorchRunnerBase::Averages::weights_of(const optim::WeightAverage& average) {
  const auto whole = runner_.averages_->whole.find(&average);
  return whole != runner_.averages_->whole.end() ? whole->second : average.weights();
}

std::shared_ptr<void> TorchRunnerBase::Averages::expose(std::shared_ptr<void> parameters) {
  if (runner_.averages_ == nullptr || parameters == nullptr || !runner_.parallelism().splits_parameters()) {
    return parameters;
  }
  detail::ModelAverages& averages = all();
  if (!averages.whole.empty()) {
    return parameters;  // inside of another
  }
  for (auto& [name, of_model] : averages.models) {
    if (of_model.ema && of_model.ema->has_average()) {
      averages.whole.emplace(&*of_model.ema, gathered(name, of_model.ema->weights()));
    }
  }
  return {parameters.get(), [parameters, kept = runner_.averages_](void*) { kept->whole.clear(); }};
}

}  // namespace danling::inline v0
