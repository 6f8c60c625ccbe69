// What a run prints when it ends.
#pragma once

namespace danling::inline v0 {
class TorchRunnerBase;
}

namespace danling::inline v0::detail {

/// Logs the curves of losses and score, the table of results, and where the files of the run are.
void log_results(TorchRunnerBase& runner);

/// Logs the options that continue the run; nothing without a checkpoint.
void log_resume(TorchRunnerBase& runner);

}  // namespace danling::inline v0::detail
