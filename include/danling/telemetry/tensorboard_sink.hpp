// TensorBoardSink: writes the numbers of a run as event files of TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <danling/telemetry/sink.hpp>

namespace danling::inline v0 {

namespace detail {
class AppendFile;
}

/// Writes event files to `<run>/tensorboard/<timestamp>/`, without TensorBoard or Python. A resumed run continues in
/// the newest such directory with files of this class, so TensorBoard shows all attempts as one run. Removes events of
/// lines after the resumed position. Does not change files of other writers.
///
/// The step of every tag is the global step:
/// - `<split>/<name>`: averages of a pass; `<split>_step/<name>`: the last batch at a log boundary of training;
///   `<split>_evaluate/<name>`: averages of an evaluation of a training split. (DanLing writes both to the first tag,
///   so its curves jump between the two, and uses the epoch as the step of averages.)
/// - `telemetry/<split>/…` and `telemetry/<split>_step/…`: times, rates and memory.
/// - `results/<split>/<name>`: the numbers of the best row, once, at the end of the run. The HPARAMS tab lists all
///   scalars in the order of their tags and shows the first.
/// - `config`, `error`: texts. Histograms, texts and images use their names as tags. `nonfinite/<histogram>` is the
///   number of NaNs and infinities, if any.
///
/// "/" joins nested names; elements of lists have their position as name; arrays of more dimensions are omitted.
/// TensorBoard stores scalars as float32.
///
/// Writes no `Experiment` of the hparams plugin: TensorBoard would use one run's for all runs and hide parameters that
/// it lacks. Without it TensorBoard collects the parameters of all runs.
class TensorBoardSink : public Sink {
 public:
  TensorBoardSink();
  ~TensorBoardSink() override;

  std::string name() const override { return "tensorboard"; }
  bool wants_histograms() const override { return true; }
  /// @throws ConfigError for a run without a directory, Error if the files cannot be written
  std::int64_t begin(const RunInfo& run) override;
  void scalars(const ScalarRecord& record) override;
  void histogram(const HistogramRecord& record) override;
  void text(const TextRecord& record) override;
  void image(const ImageRecord& record) override;
  void end(const EndRecord& record) override;

  /// Directory of the event files; empty before begin().
  const std::filesystem::path& directory() const { return directory_; }

 private:
  double wall_time(double time);
  void append(const std::string& event);

  std::string attempt_;  // timestamp of the attempt
  std::filesystem::path directory_;
  std::unique_ptr<detail::AppendFile> file_;
  std::vector<std::string> train_splits_;
  double last_time_ = 0.0;
};

}  // namespace danling::inline v0
