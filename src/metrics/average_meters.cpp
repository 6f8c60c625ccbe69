#include <danling/metrics/average_meters.hpp>

#include <utility>
#include <vector>

#include <metrics/meter_exchange.hpp>

namespace danling::inline v0 {

AverageMeter& AverageMeters::operator[](std::string_view name) {
  AverageMeter* found = meters_.find(name);
  return found != nullptr ? *found : meters_.add(name, AverageMeter());
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
  meters_.reset();
  for (auto& [name, meter] : loaded) {
    (*this)[name] = std::move(meter);
  }
}

}  // namespace danling::inline v0
