#include <danling/telemetry/progress.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

#include <danling/core/format.hpp>
#include <danling/telemetry/text.hpp>

namespace danling::inline v0 {
namespace {

constexpr auto draw_interval = std::chrono::milliseconds(100);
constexpr int least_bar = 8;
constexpr int most_bar = 30;

std::string bar(std::int64_t done, std::int64_t total, int width) {
  const int inside = width - 2;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int filled = static_cast<int>(share * inside);
  std::string out(1, '[');
  out.append(static_cast<std::size_t>(filled), '=');
  if (filled < inside) {
    out += '>';
    out.append(static_cast<std::size_t>(inside - filled - 1), ' ');
  }
  out += ']';
  return out;
}

}  // namespace

Progress::~Progress() { finish(); }

void Progress::start(std::string label, std::int64_t total, std::int64_t done) {
  label_ = std::move(label);
  total_ = total;
  first_ = done;
  done_ = done;
  fields_.clear();
  rate_ = 0.0;
  data_share_ = 0.0;
  running_ = true;
  live_ = logger_.console().live();
  started_ = Clock::now();
  next_draw_ = started_;
}

void Progress::boundary(std::int64_t done, std::vector<ProgressField> fields, double rate, const std::string& unit,
                        double data_share) {
  done_ = done;
  fields_ = std::move(fields);
  rate_ = rate;
  unit_ = unit;
  data_share_ = data_share;
  logger_.progress(text());
  logger_.flush();
  update(done);
}

void Progress::finish() {
  if (std::exchange(running_, false)) {
    logger_.console().clear_live_line();
  }
}

std::string Progress::text() const { return concat(label_, "  ", count(), tail(Clock::now())); }

std::string Progress::line(int width) const {
  const std::string end = concat(count(), tail(Clock::now()));
  const int left = width - 1 - static_cast<int>(text_width(label_) + text_width(end)) - 3;
  if (total_ <= 0 || left < least_bar) {
    return concat(label_, "  ", end);
  }
  return concat(label_, "  ", bar(done_, total_, std::min(left, most_bar)), " ", end);
}

void Progress::draw(Clock::time_point now) {
  next_draw_ = now + draw_interval;
  logger_.console().set_live_line(line(logger_.console().width()));
}

std::string Progress::count() const { return total_ > 0 ? concat(done_, "/", total_) : std::to_string(done_); }

std::string Progress::tail(Clock::time_point now) const {
  std::string out;
  for (const auto& field : fields_) {
    out += concat("  ", field.name, " ", format_number(field.value));
    if (field.average) {
      out += concat(" (", format_number(*field.average), ")");
    }
  }
  if (rate_ > 0 && std::isfinite(rate_)) {
    const bool slow = rate_ < 10;
    out += concat("  ", slow ? format_number(rate_) : format_count(std::llround(rate_)), " ", unit_, "/s");
  }
  if (data_share_ >= 0.01) {
    out += concat("  ", std::lround(100.0 * data_share_), "% waiting for data");
  }
  if (total_ > 0 && done_ > first_) {
    const double elapsed = std::chrono::duration<double>(now - started_).count();
    const double step = elapsed / static_cast<double>(done_ - first_);
    const double left = step * static_cast<double>(std::max<std::int64_t>(total_ - done_, 0));
    out += concat("  ", format_duration(left), " left");
  }
  return out;
}

}  // namespace danling::inline v0
