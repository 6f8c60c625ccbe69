// Output of a run at its end.
#pragma once

namespace danling::inline v0 {
class TorchRunnerBase;
}

namespace danling::inline v0::detail {

/// Logs the curves of losses and score, the table of results, and the paths of the run's files.
void log_results(TorchRunnerBase& runner);

/// Logs the options that continue the run; nothing without a checkpoint.
void log_resume(TorchRunnerBase& runner);

}  // namespace danling::inline v0::detail
