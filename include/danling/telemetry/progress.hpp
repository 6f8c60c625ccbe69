// Progress of a run: levels and numbers in place on a terminal, plain lines at log boundaries elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <danling/telemetry/logger.hpp>
#include <danling/telemetry/run_clock.hpp>

namespace danling::inline v0 {

/// A number of the last batch, as `name 0.1234`, or with the average of the pass `name 0.1234 (0.1500)`.
struct ProgressField {
  std::string name;
  double value = 0.0;
  std::optional<double> average = std::nullopt;
};

/// Numbers of a log boundary. 0: not known, not shown.
struct ProgressNumbers {
  std::vector<ProgressField> fields = {};
  double samples_per_s = 0.0, tokens_per_s = 0.0;
  /// Fraction of time spent waiting for data, shown from 1 %.
  double data_share = 0.0;
  /// Resident memory of the process, and the memory of its device that tensors use and that the allocator holds; MiB.
  double host_mb = 0.0, device_mb = 0.0, reserved_mb = 0.0;
};

/// A pass over a split.
struct ProgressPass {
  std::string label;  ///< in front of log lines: `train epoch 3/20`
  std::string name;   ///< on the terminal: `train`
  std::string split;
  bool trains = true;
  std::int64_t total = 0;  ///< steps; 0: unknown
  std::int64_t done = 0;   ///< steps done before
};

/// Place of a whole run.
struct ProgressRun {
  std::string label;               ///< `epoch 3/20`, `step 1,234/60,000`
  double done = 0.0, total = 0.0;  ///< in any unit; total 0: unknown
  std::vector<EvaluationsLeft> evaluations = {};
  /// Seconds until a time limit.
  std::optional<double> limit = std::nullopt;
};

/// On a terminal:
///
///     run    epoch 3/20  [====>                         ]   12%  12:05 left
///     train              [===========>                  ] 45/90   0:42 left
///       loss 0.1234 (0.1500)  acc 0.9612 (0.9543)  lr 1.0e-03
///       12,345 samples/s  2% waiting for data  host 512.0 MiB
///
/// The first line stands while there is a run, the numbers after the first log boundary. On a narrow terminal the bars
/// become shorter and then go, and the less important numbers are left out.
///
/// Used by one thread. Off a terminal `update` costs two branches.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  using RunFunction = std::function<ProgressRun()>;

  explicit Progress(Logger& logger) : logger_(logger) {}
  /// Clears the lines.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Passes from now on belong to a run, whose place the function returns at each drawing.
  void begin_run(RunFunction run) { run_ = std::move(run); }
  void end_run() { run_ = nullptr; }

  void start(const ProgressPass& pass) { start(pass, Clock::now()); }
  void start(const ProgressPass& pass, Clock::time_point now);

  /// Call after each step, with a time that was already read: draws at most ten times a second.
  void update(std::int64_t done, Clock::time_point now) {
    done_ = done;
    if (running_ && live_ && now >= next_draw_) [[unlikely]] {
      draw(now);
    }
  }

  /// Call at a log boundary: sets the numbers, logs one plain line (always to the file, to the console if it is not
  /// live), draws, and flushes the log.
  void boundary(std::int64_t done, ProgressNumbers numbers) { boundary(done, std::move(numbers), Clock::now()); }
  void boundary(std::int64_t done, ProgressNumbers numbers, Clock::time_point now);

  /// Ends the pass and clears the lines.
  void finish() { finish(Clock::now()); }
  void finish(Clock::time_point now);

  /// The plain line.
  std::string text(Clock::time_point now = Clock::now()) const;
  /// The lines for a terminal of `width` columns.
  std::vector<StyledLine> lines(int width, Clock::time_point now = Clock::now()) const;

 private:
  void draw(Clock::time_point now);
  std::string count() const;

  Logger& logger_;
  RunFunction run_;
  RunClock clock_;
  bool running_ = false;
  bool live_ = false;
  ProgressPass pass_;
  ProgressNumbers numbers_;
  std::int64_t done_ = 0;
  Clock::time_point next_draw_;
};

}  // namespace danling::inline v0
