#include <danling/metrics/average_meters.hpp>

#include <utility>
#include <vector>

#include <metrics/meter_exchange.hpp>

namespace danling::inline v0 {

AverageMeter& AverageMeters::operator[](std::string_view name) {
  if (AverageMeter* found = meters_.find(name)) {
    return *found;
  }
  AverageMeter& added = meters_.add(name, AverageMeter());
  if (batch_index_ >= 0) {
    const tape::NoRecordGuard suspended;  // not an operation of the step
    added.begin_batch(batch_index_);
  }
  return added;
}

void AverageMeters::begin_batch(std::int64_t index) {
  meters_.begin_batch(index);
  batch_index_ = index;
}

void AverageMeters::reset() {
  meters_.reset();
  batch_index_ = -1;
}

void AverageMeters::update(std::initializer_list<Update> updates) {
  for (const auto& item : updates) {
    AverageMeter& meter = (*this)[item.name];
    if (item.tensor != nullptr) {
      meter.update(*item.tensor, item.n);
    } else {
      meter.update(item.value, item.n);
    }
  }
}

Result AverageMeters::value() const {
  return meters_.collect([](const AverageMeter& meter) { return meter.value(); });
}

Result AverageMeters::batch() const {
  return meters_.collect([](const AverageMeter& meter) { return meter.batch(); });
}

Result AverageMeters::average() const {
  return meters_.collect([](const AverageMeter& meter) { return meter.average(); });
}

Result AverageMeters::sum() const {
  return meters_.collect([](const AverageMeter& meter) { return meter.total(); });
}

Result AverageMeters::count() const {
  return meters_.collect([](const AverageMeter& meter) { return static_cast<double>(meter.count()); });
}

Result AverageMeters::n() const {
  return meters_.collect([](const AverageMeter& meter) { return static_cast<double>(meter.n()); });
}

void AverageMeters::synchronize(const Group& group) {
  detail::MeterExchange exchange("average_meters.synchronize");
  for (auto& [name, meter] : meters_) {
    exchange.add(name, meter);
  }
  exchange.run(group, [this](const std::string& name) -> AverageMeter& { return (*this)[name]; });
}

std::string AverageMeters::text(int precision) const {
  std::string out;
  for (const auto& [name, meter] : meters_) {
    out += out.empty() ? "" : "\t";
    out += concat(name, ": ", meter.text(precision));
  }
  return out;
}

State AverageMeters::state_dict() const {
  State::Map state;
  for (const auto& [name, meter] : meters_) {
    state.set(name, meter.state_dict());
  }
  return state;
}

void AverageMeters::load_state_dict(const State& state) {
  std::vector<std::pair<std::string, AverageMeter>> loaded;
  for (const auto& entry : state.map()) {
    loaded.emplace_back(entry.key.string(), AverageMeter()).second.load_state_dict(entry.value);
  }
  reset();
  for (auto& [name, meter] : loaded) {
    (*this)[name] = std::move(meter);
  }
}

State AverageMeters::merge_states(std::span<const State> states) {
  State::Map merged;
  for (const State& first : states) {
    for (const auto& entry : first.map()) {
      if (merged.contains(entry.key)) {
        continue;
      }
      std::vector<State> of_meter;
      for (const State& state : states) {
        if (const State* found = state.find(entry.key)) {
          of_meter.push_back(*found);
        }
      }
      merged.set(entry.key, AverageMeter::merge_states(of_meter));
    }
  }
  return merged;
}

}  // namespace danling::inline v0
