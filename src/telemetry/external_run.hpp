// How a run appears in the stores of other programs: its identity there, and its numbers with names.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <danling/telemetry/sink.hpp>

namespace danling::inline v0::detail {

/// Twelve hexadecimal digits of the run's id: with these begins the id in the other store.
std::string external_run_key(const RunInfo& run);

/// The key and the digits of the attempt's timestamp: 32 letters and digits. A run that starts afresh is another run
/// there; one that resumes goes on under the id of its first attempt, the greatest that begins with the key.
std::string external_run_id(const RunInfo& run);

/// `train` for the averages of a pass, `train_step` at a log boundary within it; `train_evaluate` for the evaluation of
/// a split that is trained too.
std::string series_of(const ScalarRecord& record, const std::vector<std::string>& train_splits = {});

/// Numbers and elements of lists with their paths; without arrays of two or more dimensions.
std::vector<std::pair<std::string, double>> flat_values(const Result& result);

/// Names and numbers as TensorBoardSink has them: "train/loss", "train_step/loss", "telemetry/train_step/time",
/// "val/recall/0". None at the log boundaries of an evaluation, where the step stands still.
std::vector<std::pair<std::string, double>> named_values(const ScalarRecord& record,
                                                         const std::vector<std::string>& train_splits);

/// The first `bytes` bytes of UTF-8 at most, without a part of a character.
std::string_view cut_utf8(std::string_view text, std::size_t bytes);

}  // namespace danling::inline v0::detail
