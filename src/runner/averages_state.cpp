// Averages of the weights in a checkpoint: the weights under 'ema' and 'swa', their counts under 'averages'.
#include <algorithm>

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
    part[key] = own.at("weights");
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
    load("ema", *averages.ema, part, counters);
  }
  if (averages.swa && !runner_.excluded_from_loading("swa")) {
    // An exported model has one average, that of its evaluation.
    const bool exported = counters == nullptr && part.find("swa") == nullptr && !averages.ema;
    load(exported ? "ema" : "swa", *averages.swa, part, counters);
    const State* own = counters != nullptr ? counters->find("swa") : nullptr;
    const State* known = own != nullptr ? own->find("has_statistics") : nullptr;
    averages.has_statistics = known != nullptr ? known->boolean() : averages.swa->has_average();
    load_schedule(name, averages, own);
  }
}

void TorchRunnerBase::Averages::load(const std::string& key, optim::WeightAverage& average, const State& part,
                                     const State* counters) {
  const State* weights = part.find(key);
  const State* counts = counters != nullptr && counters->is_map() ? counters->find(key) : nullptr;
  const bool has_weights = weights != nullptr && weights->is_map();
  const std::int64_t position = key == "swa" ? this->position() : runner_.state_.train.global_step;
  State own;
  own["weights"] = has_weights ? *weights : State();
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

}  // namespace danling::inline v0
