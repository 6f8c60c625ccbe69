#include <danling/formats/trace.hpp>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include <formats/trace_events.hpp>

namespace danling::inline v0::formats {
namespace {

// Nanoseconds as doubles: exact for 104 days, and no overflow from the times of a damaged file.
double length_of(const TraceEvent& event) { return static_cast<double>(event.end - event.begin); }

double micros(double nanoseconds) { return nanoseconds / 1000.0; }

void add_to(std::optional<std::int64_t>& sum, std::int64_t amount) {
  std::int64_t out = 0;
  sum = __builtin_add_overflow(sum.value_or(0), amount, &out) ? INT64_MAX : out;
}

bool is_step(std::string_view name) { return name.starts_with("ProfilerStep#"); }

bool waits(std::string_view name) {
  return name.ends_with("Synchronize") || name == "cudaMemcpy" || name == "hipMemcpy";
}

/// Sums over the calls and ranges of the host, which nest by their times on each thread.
class HostSums {
 public:
  HostSums(const TraceNames& names, TraceSummary& out) : names_(names), out_(out) {}

  /// Adds an event. Call in the order of threads, then of time, outer events before inner ones.
  void add(const TraceEvent& event) {
    if (event.track != track_) {
      close_all();
      track_ = event.track;
    }
    while (!open_.empty() && !contains(*open_.back().event, event)) {
      close();
    }
    if (event.kind == TraceKind::memory) {
      add_memory(event);
    } else {
      if (!open_.empty()) {
        open_.back().inner += length_of(event);
        ++open_.back().calls;
      }
      open_.push_back({&event});
    }
  }

  void finish() {
    close_all();
    for (auto& [key, sum] : operators_) {
      out_.operators.push_back(std::move(sum));
    }
    for (auto& [name, sum] : ranges_) {
      out_.ranges.push_back(std::move(sum));
    }
    auto& steps = out_.steps;
    steps.mean_us = steps.count == 0 ? 0.0 : micros(all_steps_) / static_cast<double>(steps.count);
    steps.unnamed_us = micros(all_steps_ - named_);
  }

 private:
  struct Sum {
    double length = 0.0;
    std::int64_t count = 0;
    std::optional<std::int64_t> flops = {};

    void add(const Sum& other) {
      length += other.length;
      count += other.count;
      if (other.flops) {
        add_to(flops, *other.flops);
      }
    }
  };
  struct Open {
    const TraceEvent* event;
    double inner = 0.0;  ///< time of the calls inside it
    std::int64_t calls = 0;
    Sum same = {};  ///< sum over inner calls of the same name
  };

  /// Times are rounded, so an inner event may end a nanosecond after the outer one.
  static bool contains(const TraceEvent& outer, const TraceEvent& inner) {
    return inner.begin < outer.end && inner.end <= outer.end + 1;
  }

  void close_all() {
    while (!open_.empty()) {
      close();
    }
  }

  void close() {
    const auto [event, inner, calls, same] = open_.back();
    open_.pop_back();
    const double length = length_of(*event);
    const std::string& name = names_[event->name];
    if (event->kind != TraceKind::range) {
      operator_of(*event).self_us += micros(length - inner);
      if (calls != 1) {
        add_sum(*event, same);
      }  // else an overload forwards to another one, as in aten::mean: count one call
      const Sum sum{length, 1, event->amount < 0 ? std::nullopt : std::optional(event->amount)};
      if (!open_.empty() && open_.back().event->name == event->name) {
        open_.back().same.add(sum);
      } else {
        add_sum(*event, sum);
      }
      out_.sync_us += event->kind == TraceKind::runtime && waits(name) ? micros(length) : 0.0;
    } else if (is_step(name)) {
      TraceSteps& steps = out_.steps;
      ++steps.count;
      all_steps_ += length;
      if (steps.slowest.empty() || micros(length) > steps.slowest_us) {
        steps.slowest_us = micros(length);
        steps.slowest = name;
      }
    } else {
      TraceRange& sum = ranges_[event->name];
      sum.name = name;
      sum.total_us += micros(length);
      ++sum.count;
      named_ += is_outermost() ? length : 0.0;
    }
  }

  void add_sum(const TraceEvent& event, const Sum& sum) {
    TraceOperator& into = operator_of(event);
    into.total_us += micros(sum.length);
    into.count += sum.count;
    if (sum.flops) {
      add_to(into.flops, *sum.flops);
    }
  }

  /// Returns true if the range just closed is inside a step and inside no other range.
  bool is_outermost() const {
    bool in_step = false;
    for (const Open& open : open_) {
      const bool is_range = open.event->kind == TraceKind::range;
      if (is_range && !is_step(names_[open.event->name])) {
        return false;
      }
      in_step = in_step || is_range;
    }
    return in_step;
  }

  void add_memory(const TraceEvent& event) {
    for (auto open = open_.rbegin(); open != open_.rend(); ++open) {
      if (open->event->kind != TraceKind::range) {
        TraceOperator& sum = operator_of(*open->event);
        add_to(event.on_device ? sum.device_bytes : sum.self_bytes, event.amount);
        return;
      }
    }
  }

  TraceOperator& operator_of(const TraceEvent& event) {
    TraceOperator& sum = operators_[std::uint64_t{event.name} << 32U | event.shapes];
    if (sum.name.empty()) {
      sum.name = names_[event.name];
      sum.shapes = names_[event.shapes];
    }
    return sum;
  }

  const TraceNames& names_;
  TraceSummary& out_;
  std::uint32_t track_ = 0;
  std::vector<Open> open_;
  std::unordered_map<std::uint64_t, TraceOperator> operators_;
  std::unordered_map<std::uint32_t, TraceRange> ranges_;
  double all_steps_ = 0.0, named_ = 0.0;
};

/// Returns the time from the beginning of the first step to the end of the last; without steps the whole trace.
std::pair<std::int64_t, std::int64_t> window_of(const TraceEvents& all) {
  std::pair<std::int64_t, std::int64_t> whole{INT64_MAX, INT64_MIN}, steps = whole;
  const auto widen = [](auto& window, const TraceEvent& event) {
    window = {std::min(window.first, event.begin), std::max(window.second, event.end)};
  };
  for (const TraceEvent& event : all.events) {
    widen(whole, event);
    if (event.kind == TraceKind::range && is_step(all.names[event.name])) {
      widen(steps, event);
    }
  }
  return steps.first == INT64_MAX ? whole : steps;
}

/// Adds the devices' times. `kernels` is in the order of their beginning; kernels of several streams overlap.
void add_devices(const TraceEvents& all, const std::vector<TraceEvent>& kernels, TraceSummary& out) {
  struct Busy {
    std::int64_t until = INT64_MIN;
    double sum = 0.0;
  };
  const auto [first, last] = window_of(all);
  std::map<std::string, Busy> devices;
  std::unordered_map<std::uint32_t, TraceKernel> sums;
  for (const TraceEvent& event : kernels) {
    TraceKernel& sum = sums[event.name];
    sum.name = all.names[event.name];
    sum.total_us += micros(length_of(event));
    ++sum.count;
    const std::string& track = all.tracks[event.track];
    Busy& busy = devices[track.substr(0, track.find('\n'))];
    const std::int64_t begin = std::max({event.begin, busy.until, first});
    const std::int64_t end = std::min(event.end, last);
    busy.sum += std::max(static_cast<double>(end - begin), 0.0);
    busy.until = std::max(busy.until, end);
  }
  for (auto& [name, sum] : sums) {
    out.kernels.push_back(std::move(sum));
  }
  for (const auto& [name, busy] : devices) {
    out.devices.push_back({name, micros(busy.sum), micros(static_cast<double>(last - first) - busy.sum)});
  }
}

}  // namespace

TraceSummary read_trace(const std::filesystem::path& path, const TraceOptions& options) {
  TraceEvents all = read_trace_events(path, options.by_shape);
  TraceSummary out;
  out.trace = path.filename().string();
  out.cut_off = all.cut_off;
  // Outer events first; of events with equal times the one that the file lists first.
  std::stable_sort(all.events.begin(), all.events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tuple(a.track, a.begin, -a.end) < std::tuple(b.track, b.begin, -b.end);
  });
  std::int64_t first = INT64_MAX, last = INT64_MIN;
  std::vector<TraceEvent> kernels;
  HostSums host(all.names, out);
  for (const TraceEvent& event : all.events) {
    first = std::min(first, event.begin);
    last = std::max(last, event.end);
    if (event.kind == TraceKind::kernel) {
      kernels.push_back(event);
    } else {
      host.add(event);
    }
  }
  host.finish();
  out.wall_us = micros(static_cast<double>(last - first));
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.begin < b.begin; });
  add_devices(all, kernels, out);
  const auto by_total = [](const auto& a, const auto& b) {
    return std::tie(b.total_us, a.name) < std::tie(a.total_us, b.name);
  };
  std::sort(out.ranges.begin(), out.ranges.end(), by_total);
  std::sort(out.kernels.begin(), out.kernels.end(), by_total);
  std::sort(out.operators.begin(), out.operators.end(), [](const TraceOperator& a, const TraceOperator& b) {
    return std::tie(b.self_us, a.name, a.shapes) < std::tie(a.self_us, b.name, b.shapes);
  });
  return out;
}

std::string to_json(const TraceSummary& summary) {
  using Json = nlohmann::ordered_json;
  const TraceSteps& steps = summary.steps;
  Json out = {{"trace", summary.trace}, {"wall_us", summary.wall_us}};
  if (steps.count > 0) {
    out["steps"] = {{"count", steps.count},
                    {"mean_us", steps.mean_us},
                    {"slowest", steps.slowest},
                    {"slowest_us", steps.slowest_us},
                    {"unnamed_us", steps.unnamed_us}};
  }
  out["ranges"] = Json::array();
  for (const TraceRange& range : summary.ranges) {
    out["ranges"].push_back({{"name", range.name}, {"total_us", range.total_us}, {"count", range.count}});
  }
  out["operators"] = Json::array();
  for (const TraceOperator& entry : summary.operators) {
    Json row = {{"name", entry.name}, {"self_us", entry.self_us}, {"total_us", entry.total_us}, {"count", entry.count}};
    if (!entry.shapes.empty()) row["shapes"] = entry.shapes;
    if (entry.flops) row["flops"] = *entry.flops;
    if (entry.self_bytes) row["self_bytes"] = *entry.self_bytes;
    if (entry.device_bytes) row["device_bytes"] = *entry.device_bytes;
    out["operators"].push_back(std::move(row));
  }
  if (!summary.kernels.empty()) {
    out["sync_us"] = summary.sync_us;
    out["kernels"] = out["devices"] = Json::array();
    for (const TraceKernel& kernel : summary.kernels) {
      out["kernels"].push_back({{"name", kernel.name}, {"total_us", kernel.total_us}, {"count", kernel.count}});
    }
    for (const TraceDevice& device : summary.devices) {
      out["devices"].push_back({{"name", device.name}, {"busy_us", device.busy_us}, {"idle_us", device.idle_us}});
    }
  }
  if (!summary.cut_off.empty()) {
    out["cut_off"] = summary.cut_off;
  }
  return out.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace danling::inline v0::formats
