// Averages of the weights in a checkpoint: weights under 'ema' and 'swa', counts under 'averages'.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include <danling/telemetry/logger.hpp>

#include <runner/averages.hpp>
#include <runner/shard_states.hpp>

namespace danling::inline v0 {

void TorchRunnerBase::Internals::Averages::save(const std::string& name, State& part) {
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
    part[key] = own.at("weights").is_null() ? State() : weights_of(name, average);
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

void TorchRunnerBase::Internals::Averages::load(const std::string& name, const State& part) {
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
    // An exported model contains one average, the one that evaluation used.
    const bool exported = counters == nullptr && part.find("swa") == nullptr && !averages.ema;
    load(name, exported ? "ema" : "swa", *averages.swa, part, counters);
    const State* own = counters != nullptr ? counters->find("swa") : nullptr;
    const State* known = own != nullptr ? own->find("has_statistics") : nullptr;
    averages.has_statistics = known != nullptr ? known->boolean() : averages.swa->has_average();
    load_schedule(name, averages, own);
  }
}

void TorchRunnerBase::Internals::Averages::load(const std::string& name, const std::string& key,
                                                optim::WeightAverage& average, const State& part,
                                                const State* counters) {
  const State* weights = part.find(key);
  const State* counts = counters != nullptr && counters->is_map() ? counters->find(key) : nullptr;
  const bool has_weights = weights != nullptr && weights->is_map();
  // One of several models has a number of updates of its own.
  const State* updates = key == "swa" && by_epochs() ? nullptr : part.find("updates");
  const std::int64_t position = updates != nullptr ? updates->integer()
                                : key == "swa"     ? this->position()
                                                   : runner_.state_.train.global_step;
  State own;
  own["weights"] = has_weights ? as_averaged(name, *weights) : State();
  own["n_averaged"] = has_weights ? std::max<std::int64_t>(position, 1) : 0;  // 'ema' of a program or another release
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

State TorchRunnerBase::Internals::Averages::gathered(const std::string& name, const State& weights) {
  const Parallelism& parallelism = runner_.parallelism();
  State out = State::Map();
  const NamedTensors state = model_of(name).named_state();
  const NamedTensors trained = detail::trained_state(parallelism, model_of(name));
  for (std::size_t at = 0; at < state.size(); ++at) {
    const auto& [key, rows] = trained[at];
    out[key] = parallelism.full_tensor(rows, weights.at(key).tensor()).reshape(state[at].second.sizes());
  }
  return out;
}

State TorchRunnerBase::Internals::Averages::as_averaged(const std::string& name, const State& weights) {
  const Parallelism& parallelism = runner_.parallelism();
  const NamedTensors state = model_of(name).named_state();
  const NamedTensors trained = detail::trained_state(parallelism, model_of(name));
  State own(weights);
  bool has_parts = false;
  for (std::size_t at = 0; at < state.size(); ++at) {
    const auto& [key, rows] = trained[at];
    const State* saved = weights.find(key);
    if (saved == nullptr && rows.numel() == 0 && state[at].second.dim() == 0) {
      own[key] = rows.detach();  // another rank holds the scalar
    } else if (saved != nullptr && saved->is_tensor()) {
      const at::Tensor part = parallelism.local_tensor(rows, saved->tensor());
      own[key] = part.numel() == rows.numel() ? part.reshape(rows.sizes()) : part;
      has_parts |= saved->tensor().sizes() != state[at].second.sizes();
    }
  }
  if (!parallelism.has_whole_parameters() || !parallelism.splits_parameters()) {
    return own;
  }
  const auto ranks = parallelism.group().all_gather(std::string(has_parts ? "1" : "0"));
  return std::find(ranks.begin(), ranks.end(), "1") == ranks.end() ? weights : gathered(name, own);
}

bool TorchRunnerBase::Internals::Averages::saves_beside(const TorchRunnerBase& runner) {
  return runner.averages_ != nullptr && runner.averages_->keeps_memory && runner.averages_->applied &&
         runner.saves_shards() && !runner.shard_states().is_exposed();
}

State TorchRunnerBase::Internals::Averages::trained_weights(const ModelHandle& model) {
  if (saves_beside(runner_)) {
    for (auto& [name, averages] : all().models) {
      if (averages.ema && model_of(name).address() == model.address()) {
        return averages.ema->model_weights();
      }
    }
  }
  return {};
}

State TorchRunnerBase::Internals::Averages::weights_of(const std::string& name, const optim::WeightAverage& average) {
  const auto whole = runner_.averages_->whole.find(&average);
  if (whole != runner_.averages_->whole.end()) {
    return whole->second;
  }
  if (!runner_.saves_shards() || runner_.shard_states().is_exposed()) {
    return average.weights();
  }
  State out = average.weights();
  const NamedTensors state = model_of(name).named_state();
  const NamedTensors trained = detail::trained_state(runner_.parallelism(), model_of(name));
  for (std::size_t at = 0; at < state.size(); ++at) {
    const auto& [key, rows] = trained[at];
    const at::Tensor part = runner_.parallelism().local_tensor(rows, out.at(key).tensor());
    if (state[at].second.dim() > 0) {
      out[key] = part;
    } else if (part.numel() > 0) {
      out[key] = part.reshape({});
    } else {
      out.map().erase(key);  // another rank holds the scalar
    }
  }
  return out;
}

std::shared_ptr<void> TorchRunnerBase::Internals::Averages::expose(std::shared_ptr<void> parameters) {
  if (runner_.averages_ == nullptr || parameters == nullptr || runner_.parallelism().has_whole_parameters()) {
    return parameters;
  }
  detail::ModelAverages& averages = all();
  if (!averages.whole.empty()) {
    return parameters;  // inside another scope
  }
  for (auto& [name, of_model] : averages.models) {
    if (of_model.ema && of_model.ema->has_average()) {
      averages.whole.emplace(&*of_model.ema, gathered(name, of_model.ema->weights()));
    }
  }
  return {parameters.get(), [parameters, kept = runner_.averages_](void*) { kept->whole.clear(); }};
}

}  // namespace danling::inline v0
