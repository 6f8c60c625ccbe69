// TensorBoardSink: the numbers of a run as TensorBoard reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <danling/formats/event_file.hpp>
#include <danling/telemetry/sink.hpp>

namespace danling::inline v0 {

/// Writes event files to `<run>/tensorboard/<timestamp>/`, without TensorBoard or Python. A run that resumes continues
/// in the newest such directory that holds files of this class, so that TensorBoard shows all its attempts as one run,
/// one curve each. Events of lines that the run does not continue from are cut off. Files of other writers there remain
/// as they are.
///
/// Every tag is written against the global step:
/// - `<split>/<name>`: averages of a pass; `train_step/<name>`: of the last batch at a log boundary of training.
///   DanLing writes both to the first, which makes a curve jump between the two, and those of a pass at the epoch.
/// - `telemetry/<split>/…` and `telemetry/train_step/…`: times, rates and memory.
/// - `results/<split>/<name>`: the numbers of the best row, once, at the end of the run. The HPARAMS tab lists all
///   scalars of the runs, in order of their tags, and shows the first.
/// - `config`, `error`: texts. Histograms, texts and images have their names. `nonfinite/<histogram>` is how many
///   numbers a histogram lacks, where it lacks some.
///
/// Nested names are joined by "/", elements of lists by position; arrays of more dimensions are left out. TensorBoard
/// stores scalars as float32.
///
/// There is no `Experiment` of the hparams plugin: TensorBoard would use that of one run for all, and hide the
/// parameters that it lacks; without one it collects those of all runs.
class TensorBoardSink : public Sink {
 public:
  std::string name() const override { return "tensorboard"; }
  bool wants_histograms() const override { return true; }
  /// @throws ConfigError for a run without a directory, Error when the files cannot be written.
  std::int64_t begin(const RunInfo& run) override;
  void scalars(const ScalarRecord& record) override;
  void histogram(const HistogramRecord& record) override;
  void text(const TextRecord& record) override;
  void image(const ImageRecord& record) override;
  void end(const EndRecord& record) override;

  /// Of the event files; empty before begin().
  const std::filesystem::path& directory() const { return directory_; }

 private:
  double wall_time(double time);
  void append(const std::string& event);

  std::string attempt_;  // its timestamp
  std::filesystem::path directory_;
  std::unique_ptr<formats::EventFileWriter> writer_;
  std::vector<std::string> train_splits_;
  double last_time_ = 0.0;
};

}  // namespace danling::inline v0
