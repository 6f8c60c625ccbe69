// The id, names and numbers of a run in the stores of other programs (TensorBoard, MLflow, Weights & Biases).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/telemetry/sink.hpp>

namespace danling::inline v0::detail {

/// Returns twelve hexadecimal digits of a hash of the run's id; ids in other stores begin with them.
std::string external_run_key(const RunInfo& run);

/// Returns the key and the digits of the attempt's timestamp: 32 letters and digits. A fresh start is another run in
/// the store. A resumed run keeps the id of its first attempt, which is the greatest id that begins with the key.
std::string external_run_id(const RunInfo& run);

/// Returns the series of a record: `train` for the averages of a pass, `train_step` for a log boundary within it,
/// `train_evaluate` for the evaluation of a split that is also trained.
std::string series_of(const ScalarRecord& record, const std::vector<std::string>& train_splits = {});

/// Returns numbers and elements of lists with their paths; omits arrays of two or more dimensions.
std::vector<std::pair<std::string, double>> flat_values(const Result& result);

/// Returns names and numbers as in TensorBoardSink: "train/loss", "train_step/loss", "telemetry/train_step/time",
/// "val/recall/0". Empty for log boundaries of an evaluation, during which the step does not change.
std::vector<std::pair<std::string, double>> named_values(const ScalarRecord& record,
                                                         const std::vector<std::string>& train_splits);

/// Cuts UTF-8 text to at most `bytes` bytes, at the end of a character.
std::string_view cut_utf8(std::string_view text, std::size_t bytes);

}  // namespace danling::inline v0::detail
