// Sink: receives the records of a run, to write them in other formats or send them to other programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <danling/core/result.hpp>
#include <danling/telemetry/histogram.hpp>

namespace danling::inline v0 {

/// The run that a sink belongs to.
struct RunInfo {
  std::string name = {};  ///< for display
  std::string id = {};    ///< the same for every attempt
  std::string lineage = {}, experiment = {};
  std::string timestamp = {};               ///< timestamp of this attempt
  std::filesystem::path dir = {};           ///< directory of the run; empty with `record: false`
  std::filesystem::path metrics_file = {};  ///< metrics.jsonl; empty with `record: false`
  std::vector<std::string> train_splits = {};
  std::string config = {};  ///< the whole config as YAML
  /// The options that determine the run, flattened, such as ("optim.lr", "0.001").
  std::vector<std::pair<std::string, std::string>> hparams = {};
  double time = 0.0;  ///< start of this attempt, in seconds since 1970
  /// Lines of metrics.jsonl before the next record: 0 for a new run; after a resume, the lines of the checkpoint.
  std::int64_t lines = 0;
  std::int64_t global_step = 0;
};

/// One line of metrics.jsonl.
struct ScalarRecord {
  std::string split = {};
  std::string mode = {};  ///< train, evaluate or infer
  std::optional<std::int64_t> epoch = {};
  std::int64_t global_step = 0;
  std::optional<std::int64_t> iteration = {};  ///< unset in the averages at the end of a pass
  Result values = {};
  Result telemetry = {};  ///< times, rates and memory, without the time stamp
  double time = 0.0;      ///< seconds since 1970; 0: unknown
  std::int64_t line = 0;  ///< number of the line in metrics.jsonl, from 1
};

/// A row of the results: one per epoch, in step mode one per evaluation.
struct ResultRecord {
  std::int64_t number = 0;  ///< of the epoch, from 1; or the step
  std::int64_t global_step = 0;
  Result result = {};  ///< by split
  bool best = false;
  double time = 0.0;
  std::int64_t line = 0;  ///< number of lines of metrics.jsonl before this record
};

/// A histogram of weights, gradients, or a tensor of the program.
struct HistogramRecord {
  std::string name = {};  ///< "weights/fc.weight"
  std::int64_t global_step = 0;
  Histogram histogram = {};
  double time = 0.0;
  std::int64_t line = 0;
  bool in_step = false;  ///< made by a step: after a checkpoint of the same global_step
};

struct TextRecord {
  std::string name = {};
  std::int64_t global_step = 0;
  std::string text = {};  ///< Markdown
  double time = 0.0;
  std::int64_t line = 0;
  bool in_step = false;  ///< made by a step: after a checkpoint of the same global_step
};

struct ImageRecord {
  std::string name = {};
  std::int64_t global_step = 0;
  std::int64_t width = 0, height = 0, channels = 0;  ///< one channel: gray; three: RGB
  std::string png = {};                              ///< the encoded file
  double time = 0.0;
  std::int64_t line = 0;
  bool in_step = false;  ///< made by a step: after a checkpoint of the same global_step
};

/// The end of an attempt.
struct EndRecord {
  std::string status = {};  ///< finished, stopped or crashed
  std::string error = {};   ///< empty unless crashed
  std::int64_t global_step = 0;
  /// The numbers of the best row (without a score: the latest row), flattened: "val/loss". Empty without results.
  std::vector<std::pair<std::string, double>> metrics = {};
  double time = 0.0;
};

using SinkRecord = std::variant<ScalarRecord, ResultRecord, HistogramRecord, TextRecord, ImageRecord, EndRecord>;

/// Base class of sinks. Derive, override the hooks that you need, and call
/// `runner.add_sink(std::make_shared<MySink>())`. A SinkThread calls all hooks in its thread, so they may wait for a
/// disk or network; only on the main process. If a hook throws, it is called again with the same record after a second,
/// until it succeeds; so it must first undo its partial writes. While the run ends, it is called once more at most.
class Sink {
 public:
  virtual ~Sink() = default;

  /// The name in messages, such as "tensorboard".
  virtual std::string name() const = 0;

  /// Hook at the start or resume of a run, and at each roll-back to an earlier checkpoint. Remove the records that
  /// belong to lines of metrics.jsonl after `run.lines`.
  /// @return the number of lines that the sink already has; the SinkThread reads the lines from there to `run.lines`
  /// from metrics.jsonl and passes them to scalars() again. The base returns `run.lines`: no line is repeated.
  virtual std::int64_t begin(const RunInfo& run) { return run.lines; }
  /// Hook for each line of metrics.jsonl: log boundaries, ends of passes, and scores of the program.
  virtual void scalars(const ScalarRecord&) {}
  /// Hook for each row of the results.
  virtual void result(const ResultRecord&) {}
  /// Hook for each histogram, if wants_histograms().
  virtual void histogram(const HistogramRecord&) {}
  /// Hook for each text of the program (write_text).
  virtual void text(const TextRecord&) {}
  /// Hook for each image of the program (write_image).
  virtual void image(const ImageRecord&) {}
  /// Hook, called once after all records.
  virtual void end(const EndRecord&) {}
  /// Return true to receive histograms of weights, gradients and tensors by histogram(). Called once, in add_sink().
  virtual bool wants_histograms() const { return false; }
  /// Hook to flush buffers. Called when no record waits, at least about once a second while records arrive, and at the
  /// end.
  virtual void flush() {}
};

}  // namespace danling::inline v0
