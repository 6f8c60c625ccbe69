// Progress of a loop: one line rewritten in place on a terminal, plain lines at log boundaries elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <danling/telemetry/logger.hpp>

namespace danling::inline v0 {

/// A number on the line, as `name 0.1234` or, with an average, `name 0.1234 (0.1500)`.
struct ProgressField {
  std::string name;
  double value = 0.0;
  std::optional<double> average = std::nullopt;
};

/// `epoch 3/20  [=====>    ] 45/90  loss 0.1234 (0.1500)  lr 1.0e-03  12,345 samples/s  0:42 left`
///
/// Used by one thread. Off a terminal `update` costs two branches.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(Logger& logger) : logger_(logger) {}
  /// Clears the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Begins a loop of `total` steps (0: unknown), of which `done` are already done. `label` stands in front.
  void start(std::string label, std::int64_t total, std::int64_t done = 0);

  /// Call after each step: draws at most ten times a second, with the fields of the last boundary.
  void update(std::int64_t done) {
    done_ = done;
    if (running_ && live_) {
      update(done, Clock::now());
    }
  }
  /// The same with a time that the caller has already read.
  void update(std::int64_t done, Clock::time_point now) {
    done_ = done;
    if (running_ && live_ && now >= next_draw_) [[unlikely]] {
      draw(now);
    }
  }

  /// Call at a log boundary: sets the fields, logs one plain line (always to the file, to the console if it is no
  /// terminal), draws, and flushes the log. `rate` is in `unit` per second; 0: not shown. `data_share` is the fraction
  /// of time spent waiting for data, shown from 1 %.
  void boundary(std::int64_t done, std::vector<ProgressField> fields, double rate = 0.0,
                const std::string& unit = "samples", double data_share = 0.0);

  /// Ends the loop and clears the line.
  void finish();

  /// The line without the bar, as logged.
  std::string text() const;
  /// The line for a terminal of `width` columns; the bar fills the rest, or is omitted.
  std::string line(int width) const;

 private:
  void draw(Clock::time_point now);
  std::string tail(Clock::time_point now) const;
  std::string count() const;

  Logger& logger_;
  bool running_ = false;
  bool live_ = false;
  std::string label_;
  std::int64_t total_ = 0;
  std::int64_t first_ = 0;
  std::int64_t done_ = 0;
  Clock::time_point started_;
  Clock::time_point next_draw_;
  std::vector<ProgressField> fields_;
  double rate_ = 0.0;
  std::string unit_;
  double data_share_ = 0.0;
};

}  // namespace danling::inline v0
