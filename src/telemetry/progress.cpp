#include <danling/telemetry/progress.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <danling/core/format.hpp>
#include <danling/telemetry/text.hpp>

#include <telemetry/live_layout.hpp>

namespace danling::inline v0 {
namespace {

constexpr auto draw_interval = std::chrono::milliseconds(100);

std::string rate_text(double rate, std::string_view unit) {
  return concat(rate < 10 ? format_number(rate) : format_count(std::llround(rate)), " ", unit, "/s");
}

bool is_rate(double rate) { return rate > 0 && std::isfinite(rate); }

std::string memory_text(double mb) { return format_bytes(static_cast<std::uint64_t>(mb * 1024 * 1024)); }

detail::Cell cell(int rank, std::string name, std::string value, std::string more = {}) {
  StyledLine spans;
  if (!name.empty()) {
    spans.push_back({std::move(name) + ' ', Tone::faint});
  }
  spans.push_back({std::move(value)});
  if (!more.empty()) {
    spans.push_back({std::move(more), Tone::faint});
  }
  return {rank, std::move(spans)};
}

// The loss has the highest priority, then the metrics in order; learning rates, which are listed last, come after the
// first two.
std::vector<detail::Cell> field_cells(const std::vector<ProgressField>& fields) {
  constexpr int of_rate = 25;
  std::vector<detail::Cell> out, rates;
  int rank = 0;
  for (const ProgressField& field : fields) {
    const bool is_rate = field.name.starts_with("lr");
    const int own = field.name == "loss" ? 0 : is_rate ? of_rate : rank += 10;
    (is_rate ? rates : out)
        .push_back(cell(own, field.name, format_number(field.value),
                        field.average ? concat(" (", format_number(*field.average), ")") : std::string()));
  }
  out.insert(out.end(), rates.begin(), rates.end());
  return out;
}

std::vector<detail::Cell> rate_cells(const ProgressNumbers& numbers) {
  std::vector<detail::Cell> out;
  if (is_rate(numbers.samples_per_s)) {
    out.push_back(cell(is_rate(numbers.tokens_per_s) ? 1 : 0, "", rate_text(numbers.samples_per_s, "samples")));
  }
  if (is_rate(numbers.tokens_per_s)) {
    out.push_back(cell(0, "", rate_text(numbers.tokens_per_s, "tokens")));
  }
  if (numbers.data_share >= 0.01) {
    out.push_back(cell(2, "", concat(std::lround(100.0 * numbers.data_share), "% waiting for data")));
  }
  if (numbers.host_mb > 0) {
    out.push_back(cell(4, "host", memory_text(numbers.host_mb)));
  }
  if (numbers.device_mb > 0) {
    out.push_back(
        cell(3, "device", memory_text(numbers.device_mb),
             numbers.reserved_mb > 0 ? concat(" of ", memory_text(numbers.reserved_mb), " reserved") : std::string()));
  }
  return out;
}

}  // namespace

Progress::~Progress() { finish(); }

void Progress::start(const ProgressPass& pass, Clock::time_point now) {
  if (running_) {  // this pass interrupts another one: measure the other one up to now
    clock_.observe(done_, run_ ? run_().done : 0.0, now);
  }
  pass_ = pass;
  done_ = pass.done;
  numbers_ = {};
  running_ = true;
  live_ = logger_.live();
  clock_.begin(pass.split, pass.trains, pass.done, pass.total, run_ ? run_().done : 0.0, now);
  update(pass.done, now);
}

void Progress::boundary(std::int64_t done, ProgressNumbers numbers, Clock::time_point now) {
  done_ = done;
  numbers_ = std::move(numbers);
  logger_.progress(text(now));
  logger_.flush();
  if (running_) {
    clock_.observe(done, run_ ? run_().done : 0.0, now);
  }
  update(done, now);
}

void Progress::finish(Clock::time_point now) {
  if (std::exchange(running_, false)) {
    clock_.observe(done_, run_ ? run_().done : 0.0, now);
    clock_.end(now);
    logger_.console().clear_live_lines();
  }
}

void Progress::draw(Clock::time_point now) {
  next_draw_ = now + draw_interval;
  logger_.console().set_live_lines(lines(logger_.console().width(), now));
  clock_.observe(done_, run_ ? run_().done : 0.0, now);
}

std::string Progress::count() const {
  return pass_.total > 0 ? concat(done_, "/", pass_.total) : std::to_string(done_);
}

std::string Progress::text(Clock::time_point now) const {
  std::string out = concat(pass_.label, "  ", count());
  for (const auto& field : numbers_.fields) {
    out += concat("  ", field.name, " ", format_number(field.value));
    if (field.average) {
      out += concat(" (", format_number(*field.average), ")");
    }
  }
  if (is_rate(numbers_.samples_per_s)) {
    out += "  " + rate_text(numbers_.samples_per_s, "samples");
  }
  if (is_rate(numbers_.tokens_per_s)) {
    out += "  " + rate_text(numbers_.tokens_per_s, "tokens");
  }
  if (numbers_.data_share >= 0.01) {
    out += concat("  ", std::lround(100.0 * numbers_.data_share), "% waiting for data");
  }
  if (const auto left = clock_.pass_left(done_, now)) {
    out += concat("  ", format_duration(*left), " left");
  }
  return out;
}

std::vector<StyledLine> Progress::lines(int width, Clock::time_point now) const {
  std::vector<detail::Level> levels;
  if (run_) {
    const ProgressRun run = run_();
    detail::Level level{.name = "run", .place = run.label};
    std::optional<double> left;
    if (run.total > 0) {
      level.share = std::clamp(run.done / run.total, 0.0, 1.0);
      level.count = concat(static_cast<int>(100.0 * *level.share), "%");
      left = clock_.run_left(run.done, run.total, run.evaluations, done_, now);
    }
    if (run.limit && (!left || *run.limit < *left)) {
      level.left = concat(format_duration(std::max(*run.limit, 0.0)), " to time limit");
    } else if (left) {
      level.left = concat(format_duration(*left), " left");
    }
    levels.push_back(std::move(level));
  }
  detail::Level level{.name = pass_.name, .count = count()};
  if (pass_.total > 0) {
    level.share = std::clamp(static_cast<double>(done_) / static_cast<double>(pass_.total), 0.0, 1.0);
  }
  if (const auto left = clock_.pass_left(done_, now)) {
    level.left = concat(format_duration(*left), " left");
  }
  levels.push_back(std::move(level));
  const auto columns = static_cast<std::size_t>(std::max(width - 1, 1));
  std::vector<StyledLine> out = detail::level_lines(levels, columns);
  for (const auto& cells : {field_cells(numbers_.fields), rate_cells(numbers_)}) {
    if (!cells.empty()) {
      out.push_back(detail::cell_line(cells, columns));
    }
  }
  return out;
}

}  // namespace danling::inline v0
