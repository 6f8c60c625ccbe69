// Sinks: where the numbers of a run go besides its own files. Records and the class that receives them.
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
  std::string timestamp = {};               ///< of this attempt
  std::filesystem::path dir = {};           ///< of the run; empty with `record: false`
  std::filesystem::path metrics_file = {};  ///< metrics.jsonl; empty with `record: false`
  std::vector<std::string> train_splits = {};
  std::string config = {};  ///< all of it, as YAML
  /// The options that determine the run, flattened: "optim.lr", "0.001".
  std::vector<std::pair<std::string, std::string>> hparams = {};
  double time = 0.0;  ///< when this attempt began, in seconds since 1970
  /// Lines of metrics.jsonl before the next record: 0 for a new run, those of the checkpoint after a resume.
  std::int64_t lines = 0;
  std::int64_t global_step = 0;
};

/// One line of metrics.jsonl.
struct ScalarRecord {
  std::string split = {};
  std::string mode = {};  ///< train, evaluate or infer
  std::optional<std::int64_t> epoch = {};
  std::int64_t global_step = 0;
  std::optional<std::int64_t> iteration = {};  ///< nothing at the end of a pass, whose averages follow
  Result values = {};
  Result telemetry = {};  ///< times, rates and memory, without the time stamp
  double time = 0.0;      ///< seconds since 1970; 0: unknown
  std::int64_t line = 0;  ///< its number in metrics.jsonl, from 1
};

/// A row of the results: each epoch, in step mode each evaluation.
struct ResultRecord {
  std::int64_t index = 0;  ///< the epoch from 1, or the step
  std::int64_t global_step = 0;
  Result result = {};  ///< by split
  bool best = false;
  double time = 0.0;
  std::int64_t line = 0;  ///< lines of metrics.jsonl before it
};

/// Of weights, gradients, or a tensor of the program.
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
  std::int64_t width = 0, height = 0, channels = 0;  ///< 1: grey, 3: red, green, blue
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
  /// The numbers of the best row, or of the latest without a score, flattened: "val/loss". Empty without results.
  std::vector<std::pair<std::string, double>> metrics = {};
  double time = 0.0;
};

using SinkRecord = std::variant<ScalarRecord, ResultRecord, HistogramRecord, TextRecord, ImageRecord, EndRecord>;

/// Derive, override what you need, and `runner.add_sink(std::make_shared<MySink>())`. A SinkThread calls the functions,
/// all from its own thread: they may wait for a disk or a network. A function that throws is called again with the same
/// record, a second later or with the next record, so it must undo what it wrote before it throws. On the main process
/// only.
class Sink {
 public:
  virtual ~Sink() = default;

  /// In messages: "tensorboard".
  virtual std::string name() const = 0;

  /// The run begins or continues, and again when it returns to an earlier checkpoint (a roll-back): cut off what
  /// belongs to lines of metrics.jsonl after `run.lines`.
  /// @return how many lines are held already: those from there to `run.lines` are read from metrics.jsonl and written
  /// again as scalars(). The base keeps nothing back, and wants nothing again.
  virtual std::int64_t begin(const RunInfo& run) { return run.lines; }
  virtual void scalars(const ScalarRecord&) {}
  virtual void result(const ResultRecord&) {}
  virtual void histogram(const HistogramRecord&) {}
  virtual void text(const TextRecord&) {}
  virtual void image(const ImageRecord&) {}
  /// Once, after all records.
  virtual void end(const EndRecord&) {}
  /// Whether histogram() is ever called, and histograms of weights and gradients are made. Asked once, when the sink is
  /// added.
  virtual bool wants_histograms() const { return false; }
  /// Hands over what was written to the system: about once a second while there are records, and at the end.
  virtual void flush() {}
};

}  // namespace danling::inline v0
