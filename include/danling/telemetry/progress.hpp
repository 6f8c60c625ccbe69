// Progress: shows the progress of a run, by live lines on a terminal, else by plain lines at log boundaries.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <danling/telemetry/detail/run_clock.hpp>
#include <danling/telemetry/logger.hpp>

namespace danling::inline v0 {

/// A number of the last batch, shown as `name 0.1234`, or with the average of the pass as `name 0.1234 (0.1500)`.
struct ProgressField {
  std::string name;
  double value = 0.0;
  std::optional<double> average = std::nullopt;
};

/// Numbers of a log boundary. 0: unknown, not shown.
struct ProgressNumbers {
  std::vector<ProgressField> fields = {};
  double samples_per_s = 0.0, tokens_per_s = 0.0;
  /// Fraction of the time spent waiting for data, shown from 1 %.
  double data_share = 0.0;
  /// MiB: resident memory of the process; device memory in tensors, and reserved by the allocator.
  double host_mb = 0.0, device_mb = 0.0, reserved_mb = 0.0;
};

/// A pass over a split.
struct ProgressPass {
  std::string label;  ///< prefix of log lines: `train epoch 3/20`
  std::string name;   ///< name on the terminal: `train`
  std::string split;
  bool trains = true;
  std::int64_t total = 0;  ///< steps; 0: unknown
  std::int64_t done = 0;   ///< steps done before this attempt
};

/// The position of the whole run.
struct ProgressRun {
  std::string label;               ///< such as `epoch 3/20` or `step 1,234/60,000`
  double done = 0.0, total = 0.0;  ///< in any unit; total 0: unknown
  std::vector<EvaluationsLeft> evaluations = {};
  /// Seconds until a time limit.
  std::optional<double> limit = std::nullopt;
};

/// Draws on a terminal:
///
///     run    epoch 3/20  [====>                         ]   12%  12:05 left
///     train              [===========>                  ] 45/90   0:42 left
///       loss 0.1234 (0.1500)  acc 0.9612 (0.9543)  lr 1.0e-03
///       12,345 samples/s  2% waiting for data  host 512.0 MiB
///
/// The first line appears only during a run, the numbers after the first log boundary. A narrow terminal shows shorter
/// bars, then no bars, and omits the less important numbers.
///
/// For one thread. Without a terminal `update` costs two branches.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  using RunFunction = std::function<ProgressRun()>;

  explicit Progress(Logger& logger) : logger_(logger) {}
  /// Clears the lines.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Begins a run, to which later passes belong. `run` returns its position and is called at each drawing.
  void begin_run(RunFunction run) { run_ = std::move(run); }
  void end_run() { run_ = nullptr; }

  void start(const ProgressPass& pass) { start(pass, Clock::now()); }
  void start(const ProgressPass& pass, Clock::time_point now);

  /// Call after each step with the current time, which the caller has read anyway. Draws at most ten times a second.
  void update(std::int64_t done, Clock::time_point now) {
    done_ = done;
    if (running_ && live_ && now >= next_draw_) [[unlikely]] {
      draw(now);
    }
  }

  /// Call at a log boundary. Sets the numbers, logs one plain line (to the file, and to the console unless it is live),
  /// draws, and flushes the log.
  void boundary(std::int64_t done, ProgressNumbers numbers) { boundary(done, std::move(numbers), Clock::now()); }
  void boundary(std::int64_t done, ProgressNumbers numbers, Clock::time_point now);

  /// Ends the pass and clears the lines.
  void finish() { finish(Clock::now()); }
  void finish(Clock::time_point now);

  /// Returns the plain line.
  std::string text(Clock::time_point now = Clock::now()) const;
  /// Returns the lines for a terminal of `width` columns.
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
