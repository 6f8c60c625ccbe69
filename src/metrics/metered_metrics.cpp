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

void load_meters(const NamedMeters& meters, std::string_view component, const State& state) {
  std::vector<std::string> expected;
  std::vector<AverageMeter> loaded;
  for (const auto& [name, meter] : meters) {
    expected.emplace_back(name);
    if (const State* part = state.find(name)) {
      loaded.emplace_back().load_state_dict(*part);
    }
  }
  if (loaded.size() != expected.size() || state.map().size() != expected.size()) {
    std::vector<std::string> got;
    for (const auto& entry : state.map()) {
      got.push_back(entry.key.text());
    }
    fail<StateError>(concat(component, ".load_state_dict"), "expected metrics [", join(expected), "], got [", join(got),
                     "]");
  }
  for (std::size_t index = 0; index < meters.size(); ++index) {
    *meters[index].second = std::move(loaded[index]);
  }
}

}  // namespace danling::inline v0::detail
