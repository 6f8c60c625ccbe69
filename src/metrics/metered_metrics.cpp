#include <danling/metrics/metered_metrics.hpp>

#include <danling/core/error.hpp>

#include <metrics/meter_exchange.hpp>

namespace danling::inline v0::detail {

void synchronize_meters(const NamedMeters& meters, std::string_view component, const Group& group) {
  MeterExchange exchange(concat(component, ".synchronize"));
  for (const auto& [name, meter] : meters) {
    exchange.add(std::string(name), *meter);
  }
  exchange.run(group);
}

State state_of_meters(const NamedMeters& meters) {
  State::Map state;
  for (const auto& [name, meter] : meters) {
    state.set(std::string(name), meter->state_dict());
  }
  return state;
}

namespace {

// @throws StateError unless the state has the names of the meters.
void check_names(const NamedMeters& meters, const std::string& where, const State& state) {
  std::vector<std::string> expected;
  bool same = state.map().size() == meters.size();
  for (const auto& [name, meter] : meters) {
    expected.emplace_back(name);
    same = same && state.find(name) != nullptr;
  }
  if (!same) {
    std::vector<std::string> got;
    for (const auto& entry : state.map()) {
      got.push_back(entry.key.text());
    }
    fail<StateError>(where, "expected metrics [", join(expected), "], got [", join(got), "]");
  }
}

}  // namespace

void load_meters(const NamedMeters& meters, std::string_view component, const State& state) {
  check_names(meters, concat(component, ".load_state_dict"), state);
  std::vector<AverageMeter> loaded;
  for (const auto& [name, meter] : meters) {
    loaded.emplace_back().load_state_dict(state.at(name));
  }
  for (std::size_t index = 0; index < meters.size(); ++index) {
    *meters[index].second = std::move(loaded[index]);
  }
}

State merge_meter_states(const NamedMeters& meters, std::string_view component, std::span<const State> states) {
  for (const State& state : states) {
    check_names(meters, concat(component, ".merge_states"), state);
  }
  State::Map merged;
  for (const auto& [name, meter] : meters) {
    std::vector<State> of_meter;
    for (const State& state : states) {
      of_meter.push_back(state.at(name));
    }
    merged.set(std::string(name), AverageMeter::merge_states(of_meter));
  }
  return merged;
}

}  // namespace danling::inline v0::detail
